/*
 * mpix_await.hpp - co_await on MPI requests, by continuations (C++20, header-only)
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 *     mpix::task exchange(mpix::awaiting &mpi)
 *     {
 *         MPI_Request request;
 *         MPI_Irecv(..., &request);
 *         MPI_Status status = co_await mpi(request);    (other coroutines run meanwhile)
 *         ...
 *     }
 *
 *     mpix::awaiting mpi;
 *     exchange(mpi);
 *     exchange(mpi);
 *     mpi.wait();                                       (until no coroutine waits)
 *
 * Any pending request of MPI or of this library will do. A coroutine continues in a call of MPI or
 * of this library, in whatever thread makes it (mpix_continue.h). What is shown here for coroutines
 * works for any runtime that can resume a task from a callback.
 */
#ifndef MPIX_AWAIT_HPP
#define MPIX_AWAIT_HPP

#include <mpix_rma.h>

#include <coroutine>
#include <exception>
#include <stdexcept>
#include <string>

namespace mpix {

/* A coroutine that starts at once and belongs to nobody. An exception that leaves it ends the
 * program. */
struct task {
    struct promise_type {
        task get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};

/* What a failed request throws: an MPI error code and its text. */
struct failure : std::runtime_error {
    explicit failure(int error) : std::runtime_error(text_of(error)), code(error) {}
    int code;

  private:
    static std::string text_of(int error)
    {
        char text[MPI_MAX_ERROR_STRING];
        int length = 0;
        MPI_Error_string(error, text, &length);
        return std::string(text, static_cast<std::size_t>(length));
    }
};

/* Coroutines that wait for requests, over one continuation request. */
class awaiting {
  public:
    awaiting()
    {
        check(MPIX_Continue_init(0, 0, MPI_INFO_NULL, &all_));
        check(MPI_Start(&all_));
    }
    awaiting(const awaiting &) = delete;
    awaiting &operator=(const awaiting &) = delete;
    ~awaiting() { MPI_Request_free(&all_); }

    /* Waits until no coroutine waits for a request. */
    void wait()
    {
        check(MPI_Wait(&all_, MPI_STATUS_IGNORE));
        check(MPI_Start(&all_));
    }

    /* Resumes coroutines whose requests are complete. True if none waits any more. */
    bool test()
    {
        int none = 0;
        check(MPI_Test(&all_, &none, MPI_STATUS_IGNORE));
        if (none)
            check(MPI_Start(&all_));
        return none != 0;
    }

    class awaiter {
      public:
        awaiter(MPI_Request request, MPI_Request all) : request_(request), all_(all) {}

        bool await_ready() const noexcept { return false; }

        bool await_suspend(std::coroutine_handle<> coroutine)
        {
            coroutine_ = coroutine;
            /* Deferred, because a callback inside this call would resume a coroutine that is not
             * suspended yet. Another thread may resume it before this call returns, so nothing of
             * the awaiter is used after success. */
            int error = MPIX_Continue(&request_, resume, this,
                                      MPIX_CONT_REQUESTS_FREE | MPIX_CONT_DEFER_COMPLETE |
                                          MPIX_CONT_INVOKE_FAILED,
                                      &status_, all_);
            if (error == MPI_SUCCESS)
                return true;
            error_ = error;
            return false;
        }

        MPI_Status await_resume() const
        {
            check(error_);
            return status_;
        }

      private:
        static int resume(int error, void *awaiter_of)
        {
            auto *self = static_cast<awaiter *>(awaiter_of);
            self->error_ = error;
            self->coroutine_.resume();
            return MPI_SUCCESS;
        }

        MPI_Request request_, all_;
        MPI_Status status_{};
        int error_ = MPI_SUCCESS;
        std::coroutine_handle<> coroutine_;
    };

    awaiter operator()(MPI_Request request) { return {request, all_}; }

  private:
    static void check(int error)
    {
        if (error != MPI_SUCCESS)
            throw failure(error);
    }

    MPI_Request all_ = MPI_REQUEST_NULL;
};

} // namespace mpix

#endif
