/*
 * fa2 for C++: contexts that close themselves, and exceptions instead of status codes. C++11 or newer, nothing to link
 * besides the C library. fa2.h says what the structs and functions mean.
 *
 *     fa2::context context;
 *     fa2::problem problem;
 *     problem.batch = 1, problem.heads_q = problem.heads_kv = 8, problem.seq_q = problem.seq_k = 512;
 *     problem.head_dim = 64;
 *     fa2::forward_args args;
 *     args.q = ..., args.workspace_bytes = context.workspace_size(problem), args.workspace = ...;
 *     context.forward(problem, args, stream);
 *
 * ERRORS. Every function that can fail throws fa2::error. Like the C functions, it has then launched nothing. The
 * exception of fa2.h holds here, too: a later kernel of a call may fail with FA2_E_CUDA.
 *
 * THREADS. As in C: several threads may use one context. None may use it while it is moved from or destroyed.
 */
#ifndef FA2_HPP
#define FA2_HPP

#include <fa2.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fa2
{

/* A call that failed. what() is fa2_last_message(). */
class error : public std::runtime_error
{
  public:
    error(fa2_status status, const std::string &message) : std::runtime_error(message), status_(status)
    {
    }

    fa2_status status() const noexcept
    {
        return status_;
    }

  private:
    fa2_status status_;
};

/* Throws unless a C function succeeded. */
inline void check(fa2_status status)
{
    if (status != FA2_OK)
        throw error(status, fa2_last_message());
}

/* A struct of fa2.h that is filled with 0, except struct_bytes. */
template <class Struct> struct sized : Struct {
    sized() : Struct()
    {
        this->struct_bytes = sizeof(Struct);
    }
};

using problem = sized<fa2_problem>;
using forward_args = sized<fa2_forward_args>;
using backward_args = sized<fa2_backward_args>;
using config = sized<fa2_config>;
using explanation = sized<fa2_explanation>;
using counters = sized<fa2_counters>;

/* Called for each line of a context's log (fa2_config.log). Its exceptions are dropped, because C code calls it. */
using log_function = std::function<void(const char *message)>;

/* Owns a fa2_context. It can be moved, not copied. A context that was moved from may only be destroyed or assigned
 * to. */
class context
{
  public:
    context() : context(config())
    {
    }

    explicit context(const fa2_config &settings)
    {
        open(settings);
    }

    /* log replaces log, log_at and log_user of the settings. */
    context(fa2_config settings, log_function log) : log_(new log_function(std::move(log)))
    {
        settings.log = [](void *user, const char *message) {
            try {
                (*static_cast<const log_function *>(user))(message);
            } catch (...) { // an exception must not pass through C
            }
        };
        settings.log_at = nullptr;
        settings.log_user = log_.get();
        open(settings);
    }

    context(context &&other) = default;

    context &operator=(context &&other) noexcept
    {
        handle_ = std::move(other.handle_); // first, because it may still write to the old log
        log_ = std::move(other.log_);
        return *this;
    }

    void prepare(const fa2_problem &asked)
    {
        check(fa2_prepare(get(), &asked));
    }

    /* Returns bytes of device memory. */
    std::size_t workspace_size(const fa2_problem &asked)
    {
        std::size_t bytes = 0;
        check(fa2_workspace_size(get(), &asked, &bytes));
        return bytes;
    }

    /* stream: a CUstream or cudaStream_t. It does not wait. */
    void forward(const fa2_problem &asked, const fa2_forward_args &args, void *stream = nullptr)
    {
        check(fa2_forward(get(), &asked, &args, stream));
    }

    void backward(const fa2_problem &asked, const fa2_backward_args &args, void *stream = nullptr)
    {
        check(fa2_backward(get(), &asked, &args, stream));
    }

    void merge(const fa2_problem &asked, const fa2_merge_args &args, void *stream = nullptr)
    {
        check(fa2_merge(get(), &asked, &args, stream));
    }

    explanation explain(const fa2_problem &asked)
    {
        explanation answer;
        check(fa2_explain(get(), &asked, &answer));
        return answer;
    }

    counters read_counters()
    {
        counters read;
        check(fa2_read_counters(get(), &read));
        return read;
    }

    /* Returns the C context, which stays this object's. */
    fa2_context *get() const noexcept
    {
        return handle_.get();
    }

  private:
    struct closer {
        void operator()(fa2_context *handle) const noexcept
        {
            fa2_context_destroy(handle);
        }
    };

    void open(const fa2_config &settings)
    {
        fa2_context *handle = nullptr;
        check(fa2_context_create(&settings, &handle));
        handle_.reset(handle);
    }

    std::unique_ptr<log_function> log_; // before the handle: it is destroyed after it, and does not move
    std::unique_ptr<fa2_context, closer> handle_;
};

/* Returns which elements a call with this dropout keeps (1) or drops (0): [batch, heads_q, seq_q, seq_k], row-major. It
 * is computed on the CPU, for tests. Throws FA2_E_MEMORY if there is no memory for the mask. */
inline std::vector<std::uint8_t> dropout_mask(const fa2_problem &asked, const fa2_dropout &dropout)
{
    std::vector<std::uint8_t> mask;
    std::size_t elements = 1;
    for (const std::int32_t size : {asked.batch, asked.heads_q, asked.seq_q, asked.seq_k}) {
        if (size > 0 && elements > mask.max_size() / std::size_t(size))
            throw error(FA2_E_MEMORY,
                        "no memory for a dropout mask of more than " + std::to_string(mask.max_size()) + " bytes");
        elements *= size > 0 ? std::size_t(size) : 0;
    }
    try {
        mask.resize(elements);
    } catch (const std::bad_alloc &) {
        throw error(FA2_E_MEMORY, "no memory for a dropout mask of " + std::to_string(elements) + " bytes");
    }
    check(fa2_dropout_mask(&asked, &dropout, mask.data()));
    return mask;
}

} // namespace fa2

#endif
