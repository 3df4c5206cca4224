// fa2.hpp: one call on the device of FA2_CUDA_LIBRARY, and what goes wrong. The software device is enough.
//
//     test_cpp LIBCUDA     the driver, whose functions allocate and copy
#include <fa2.hpp>

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstring>

namespace
{

int failures;

void expect(bool holds, const char *what)
{
    if (!holds) {
        std::fprintf(stderr, "FAILED: %s\n", what);
        failures++;
    }
}

template <class Function> Function find(void *library, const char *name)
{
    Function function;
    void *const symbol = dlsym(library, name);
    std::memcpy(&function, &symbol, sizeof function);
    return function;
}

// Device memory of the current CUDA context.
class memory
{
  public:
    memory(void *driver, std::size_t bytes)
        : copy_in_(find<int (*)(unsigned long long, const void *, std::size_t)>(driver, "cuMemcpyHtoD_v2")),
          copy_out_(find<int (*)(void *, unsigned long long, std::size_t)>(driver, "cuMemcpyDtoH_v2")),
          free_(find<int (*)(unsigned long long)>(driver, "cuMemFree_v2"))
    {
        find<int (*)(unsigned long long *, std::size_t)>(driver, "cuMemAlloc_v2")(&address_, bytes);
    }

    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;

    ~memory()
    {
        free_(address_);
    }

    void *data() const
    {
        return reinterpret_cast<void *>(address_);
    }

    template <class Element> void copy_in(const std::vector<Element> &from)
    {
        copy_in_(address_, from.data(), from.size() * sizeof(Element));
    }

    template <class Element> void copy_out(std::vector<Element> &to) const
    {
        copy_out_(to.data(), address_, to.size() * sizeof(Element));
    }

  private:
    unsigned long long address_ = 0;
    int (*copy_in_)(unsigned long long, const void *, std::size_t);
    int (*copy_out_)(void *, unsigned long long, std::size_t);
    int (*free_)(unsigned long long);
};

constexpr int heads = 2, rows = 40, columns = 32;
constexpr std::size_t elements = std::size_t(rows) * heads * columns;
constexpr std::uint16_t one = 0x3c00, two = 0x4000; // fp16

fa2::problem small_problem()
{
    fa2::problem problem;
    problem.batch = 1;
    problem.heads_q = problem.heads_kv = heads;
    problem.seq_q = problem.seq_k = rows;
    problem.head_dim = columns;
    return problem;
}

fa2_tensor tensor_of(const memory &place)
{
    return fa2_tensor{place.data(), rows * heads * columns, heads * columns, columns};
}

// All scores are equal and all values are 2, so O is 2.
void test_forward(void *driver, fa2::context &context)
{
    const fa2::problem problem = small_problem();
    memory ones(driver, elements * 2), twos(driver, elements * 2), out(driver, elements * 2);
    ones.copy_in(std::vector<std::uint16_t>(elements, one));
    twos.copy_in(std::vector<std::uint16_t>(elements, two));
    const std::size_t bytes = context.workspace_size(problem);
    const memory workspace(driver, bytes + 1);

    fa2::forward_args args;
    args.q = args.k = tensor_of(ones);
    args.v = tensor_of(twos);
    args.o = tensor_of(out);
    args.workspace = bytes > 0 ? workspace.data() : nullptr;
    args.workspace_bytes = bytes;
    context.forward(problem, args);
    find<int (*)()>(driver, "cuCtxSynchronize")();

    std::vector<std::uint16_t> found(elements);
    out.copy_out(found);
    std::size_t wrong = 0;
    for (const std::uint16_t element : found)
        wrong += element != two;
    expect(wrong == 0, "O is the mean of the values");
    expect(std::strstr(context.explain(problem).variant, "fwd_") != nullptr, "explain names the kernel");
    const fa2::counters counters = context.read_counters();
    expect(counters.misses >= 1 && counters.calls_failed == 0, "the counters are read");
}

template <class Call> fa2_status status_of(Call call)
{
    try {
        call();
    } catch (const fa2::error &error) {
        expect(std::strlen(error.what()) > 0, "an error has a message");
        return error.status();
    }
    return FA2_OK;
}

void test_errors(fa2::context &context)
{
    fa2::problem bad = small_problem();
    bad.head_dim = 7;
    expect(status_of([&] { context.prepare(bad); }) == FA2_E_INVALID, "a head of 7 columns is refused");
    expect(status_of([&] { context.workspace_size(bad); }) == FA2_E_INVALID, "... by workspace_size");
    expect(status_of([&] { context.explain(bad); }) == FA2_E_INVALID, "... by explain");
    expect(status_of([&] { context.forward(bad, fa2::forward_args()); }) == FA2_E_INVALID, "... by forward");
    expect(status_of([&] { context.backward(small_problem(), fa2::backward_args()); }) == FA2_E_INVALID,
           "backward of a forward problem is refused");
    fa2::config nowhere;
    nowhere.device_plus_one = 99;
    expect(status_of([&] { fa2::context unused(nowhere); }) == FA2_E_NO_DEVICE, "device 98 is refused");
}

void test_ownership(const fa2::config &settings)
{
    fa2::context first(settings);
    fa2_context *const handle = first.get();
    fa2::context second(std::move(first));
    expect(second.get() == handle && first.get() == nullptr, "moving takes the context along");
    fa2::context third(settings);
    third = std::move(second);
    expect(third.get() == handle && second.get() == nullptr, "so does assigning");
    expect(status_of([&] { second.prepare(small_problem()); }) == FA2_E_INVALID, "an empty context is refused");
}

// The log says that nothing is tuned; what it throws goes no further.
void test_log(const fa2::config &settings)
{
    int lines = 0;
    fa2::context logged(settings, [&](const char *) {
        lines++;
        throw std::runtime_error("from the log");
    });
    fa2::context moved(std::move(logged));
    moved.prepare(small_problem());
    expect(lines > 0, "the log is called");
}

void test_dropout_mask()
{
    fa2::problem problem = small_problem();
    problem.dropout = 1;
    fa2_dropout dropout = fa2_dropout();
    dropout.p = 0.5F;
    double kept = 0;
    for (const std::uint8_t element : fa2::dropout_mask(problem, dropout))
        kept += element;
    expect(std::fabs(kept / (rows * rows * heads) - 0.5) < 0.05, "half of the elements are kept");
    problem.seq_q = problem.seq_k = 1 << 30;
#ifndef __SANITIZE_ADDRESS__ // which ends the program instead of throwing
    expect(status_of([&] { fa2::dropout_mask(problem, dropout); }) == FA2_E_MEMORY, "a mask too large for memory");
#endif
    problem.batch = problem.heads_q = problem.heads_kv = 1 << 30;
    expect(status_of([&] { fa2::dropout_mask(problem, dropout); }) == FA2_E_MEMORY, "a mask of 2^120 elements");
    problem = small_problem();
    problem.dropout = 1;
    problem.seq_q = 0;
    expect(status_of([&] { fa2::dropout_mask(problem, dropout); }) == FA2_E_INVALID, "a mask without rows is refused");
}

} // namespace

int main(int argc, char **argv)
{
    void *const driver = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
    if (driver == nullptr) {
        std::fprintf(stderr, "usage: test_cpp LIBCUDA\n");
        return 2;
    }
    fa2::config settings;
    settings.database = "";
    settings.device_plus_one = 1;
    fa2::context context(settings);
    int device = 0;
    void *current = nullptr;
    find<int (*)(int *, int)>(driver, "cuDeviceGet")(&device, 0);
    find<int (*)(void **, int)>(driver, "cuDevicePrimaryCtxRetain")(&current, device);
    find<int (*)(void *)>(driver, "cuCtxSetCurrent")(current);
    test_forward(driver, context);
    test_errors(context);
    test_ownership(settings);
    test_log(settings);
    test_dropout_mask();
    std::printf("%d failed\n", failures);
    return failures > 0;
}
