/*
 * --arch: SMs by name, native and all. "all" leaves out SMs that the compiler does not know or that no card stands for.
 * "native" includes every SM that is here, so that one without support is refused by name.
 */
#include <string.h>
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/device.h"
#include "tuner/commands/commands.h"

enum { NVRTC_ARCHS_MAX = 64 };

/* Adds an SM, once. Returns FA2_E_INVALID beyond FA2I_ARCHS_MAX. */
static fa2_status add_arch(fa2i_options *options, int arch)
{
    for (size_t i = 0; i < options->arch_count; i++)
        if (options->archs[i] == arch)
            return FA2_OK;
    if (options->arch_count == FA2I_ARCHS_MAX)
        return fa2i_fail(FA2_E_INVALID, "--arch: more than %d architectures", FA2I_ARCHS_MAX);
    options->archs[options->arch_count++] = arch;
    return FA2_OK;
}

/* Returns 86 for the item "sm_86" of that many characters, or 0 if it names no SM. */
static int sm_of(const char *item, size_t bytes)
{
    int arch = 0;
    if (bytes < 5 || bytes > 6 || strncmp(item, "sm_", 3) != 0)
        return 0;
    for (size_t i = 3; i < bytes; i++) {
        if (item[i] < '0' || item[i] > '9')
            return 0;
        arch = 10 * arch + (item[i] - '0');
    }
    return arch;
}

fa2_status fa2i_archs_parse(const char *value, fa2i_options *options)
{
    static const char accepted[] = "architectures such as sm_86, native or all, with commas between: sm_80,sm_86";
    for (const char *item = value;; item++) {
        const size_t bytes = strcspn(item, ",");
        const int arch = sm_of(item, bytes);
        fa2_status st = FA2_OK;
        if (arch > 0)
            st = add_arch(options, arch);
        else if (bytes == strlen("all") && strncmp(item, "all", bytes) == 0)
            options->arch_all = true;
        else if (bytes == strlen("native") && strncmp(item, "native", bytes) == 0)
            options->arch_native = true;
        else
            st = fa2i_fail(FA2_E_INVALID, "--arch \"%s\": expected %s", value, accepted);
        item += bytes;
        if (st != FA2_OK || *item == '\0')
            return st;
    }
}

static fa2_status add_all(fa2i_generator *generator, fa2i_options *options)
{
    fa2_status st = FA2_OK;
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2i_card card;
    int count = 0, archs[NVRTC_ARCHS_MAX];
    FA2_TRY(fa2i_nvrtc_get(&nvrtc));
    if (nvrtc->get_num_supported_archs(&count) != NVRTC_SUCCESS || count > NVRTC_ARCHS_MAX ||
        nvrtc->get_supported_archs(archs) != NVRTC_SUCCESS)
        FA2_TRY(fa2i_fail(FA2_E_COMPILE, "--arch all: this NVRTC does not say what it compiles "
                                         "for; name architectures: --arch sm_80,sm_86"));
    for (int i = 0; i < count; i++)
        if (fa2i_generator_card(generator, archs[i], &card) == FA2_OK)
            FA2_TRY(add_arch(options, archs[i]));
done:
    return st;
}

static fa2_status add_native(fa2i_options *options)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = NULL;
    fa2i_card card;
    int count = 0;
    FA2_TRY(fa2i_cuda_get(&cuda));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->device_get_count(&count), "cuDeviceGetCount"));
    for (int i = 0; i < count || i == 0; i++) { /* without a device, device 0 gives the error */
        FA2_TRY(fa2i_device_card(cuda, i, &card));
        FA2_TRY(add_arch(options, card.arch));
    }
done:
    return st;
}

fa2_status fa2i_archs_card(fa2i_generator *generator, const fa2i_options *options, size_t n, fa2i_card *ret_card)
{
    const fa2i_cuda_table *cuda = NULL;
    if (options->device < 0)
        return fa2i_generator_card(generator, options->archs[n], ret_card);
    const fa2_status st = fa2i_cuda_get(&cuda);
    return st == FA2_OK
               ? fa2i_device_card(cuda, options->device, ret_card)
               : fa2i_fail_prefix(st, "--device %d (--arch with the SM of your card needs no GPU)", options->device);
}

fa2_status fa2i_archs_play(fa2i_generator *generator, const fa2i_options *options, fa2i_card *card)
{
    fa2i_card of_sm;
    if (options->arch_count == 0 && !options->arch_all && !options->arch_native)
        return FA2_OK;
    if (options->arch_count != 1 || options->arch_all || options->arch_native)
        return fa2i_fail(FA2_E_INVALID, "tune takes one SM for the card to play, and no list: --arch sm_86");
    fa2_status st = fa2i_generator_card(generator, options->archs[0], &of_sm);
    if (st != FA2_OK)
        return st;
    if (of_sm.arch >= card->arch)
        return fa2i_fail(
            FA2_E_INVALID, "--arch sm_%d: a card plays only an SM older than its own, and this is %s with sm_%d%s",
            of_sm.arch, card->name, card->arch, of_sm.arch == card->arch ? "; tune it without --arch" : "");
    *card = fa2i_card_proxy(card, &of_sm);
    return FA2_OK;
}

fa2_status fa2i_archs_find(fa2i_generator *generator, fa2i_options *options)
{
    fa2_status st = FA2_OK;
    if (options->arch_all)
        FA2_TRY(add_all(generator, options));
    if (options->arch_native)
        FA2_TRY(add_native(options));
done:
    return st;
}
