//! Reproducible random numbers, by place and seed.

/// A hash of a number (the finalizer of splitmix64).
pub(super) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// A random factor between `1 - jitter` and `1 + jitter`, from a random number.
pub(super) fn factor(random: u64, jitter: f64) -> f64 {
    1.0 + jitter * (random as f64 / u64::MAX as f64 * 2.0 - 1.0)
}
