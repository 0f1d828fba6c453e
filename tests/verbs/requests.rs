//! How many requests each call takes; and what becomes of queues that fail.
