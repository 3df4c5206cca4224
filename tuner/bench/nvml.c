/*
 * Declares the part of NVML that is used, because the library is there only at run time. If an older library lacks a
 * function, or a card does not support it, the value stays unknown.
 */
#include "tuner/bench/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/environment.h"

enum { SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0 };

static void *function_of(const fa2i_nvml *nvml, const char *name)
{
    return nvml->library == NULL ? NULL : dlsym(nvml->library, name);
}

static void *load(char *why, size_t why_bytes)
{
    const char *given = fa2i_environment("FA2_NVML_LIBRARY");
    const char *name = given != NULL ? given : "libnvidia-ml.so.1";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        snprintf(why, why_bytes, "%s", dlerror());
    return library;
}

static void *find_device(const fa2i_nvml *nvml, const unsigned char uuid[16])
{
    int (*by_uuid)(const char *, void **) = NULL;
    *(void **)&by_uuid = function_of(nvml, "nvmlDeviceGetHandleByUUID");
    static const char *const kinds[] = {"GPU", "MIG"};
    void *device = NULL;
    for (size_t i = 0; by_uuid != NULL && i < sizeof kinds / sizeof *kinds; i++) {
        char text[64];
        size_t used = (size_t)snprintf(text, sizeof text, "%s", kinds[i]);
        for (int byte = 0; byte < 16; byte++) {
            const bool first = byte == 0 || byte == 4 || byte == 6 || byte == 8 || byte == 10;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%02x", first ? "-" : "", uuid[byte]);
        }
        if (by_uuid(text, &device) == SUCCESS)
            return device;
    }
    return NULL;
}

void fa2i_nvml_open(const unsigned char uuid[16], fa2i_nvml *ret_nvml)
{
    fa2i_nvml nvml = {0};
    int (*init)(void) = NULL;
    int (*version)(char *, unsigned) = NULL;
    nvml.library = load(nvml.why, sizeof nvml.why);
    *(void **)&init = function_of(&nvml, "nvmlInit_v2");
    if (nvml.library != NULL && (init == NULL || init() != SUCCESS)) {
        snprintf(nvml.why, sizeof nvml.why, "NVML does not start");
        (void)dlclose(nvml.library);
        nvml.library = NULL;
    }
    *(void **)&version = function_of(&nvml, "nvmlSystemGetDriverVersion");
    if (version == NULL || version(nvml.driver, sizeof nvml.driver) != SUCCESS)
        nvml.driver[0] = '\0';
    nvml.device = find_device(&nvml, uuid);
    if (nvml.library != NULL && nvml.device == NULL)
        snprintf(nvml.why, sizeof nvml.why, "NVML does not know this device");
    *ret_nvml = nvml;
}

void fa2i_nvml_close(fa2i_nvml *nvml)
{
    int (*end)(void) = NULL;
    *(void **)&end = function_of(nvml, "nvmlShutdown");
    if (end != NULL)
        (void)end();
    if (nvml->library != NULL)
        (void)dlclose(nvml->library);
    *nvml = (fa2i_nvml){0};
}

/* Returns 0 if it is not known. */
static unsigned read_number(const fa2i_nvml *nvml, const char *name, int which)
{
    int (*read)(void *, int, unsigned *) = NULL;
    unsigned number = 0;
    *(void **)&read = function_of(nvml, name);
    return read != NULL && read(nvml->device, which, &number) == SUCCESS ? number : 0;
}

static bool read_long(const fa2i_nvml *nvml, const char *name, unsigned long long *ret_number)
{
    int (*read)(void *, unsigned long long *) = NULL;
    *(void **)&read = function_of(nvml, name);
    return nvml->device != NULL && read != NULL && read(nvml->device, ret_number) == SUCCESS;
}

static void widen(unsigned number, bool first, unsigned *least, unsigned *most)
{
    if (number == 0)
        return;
    if (first || number < *least || *least == 0)
        *least = number;
    if (first || number > *most)
        *most = number;
}

void fa2i_nvml_look(const fa2i_nvml *nvml, fa2i_conditions *conditions)
{
    unsigned long long reasons = 0;
    const bool first = conditions->looks == 0;
    if (nvml->device == NULL)
        return;
    widen(read_number(nvml, "nvmlDeviceGetClockInfo", CLOCK_SM), first, &conditions->sm_mhz_least,
          &conditions->sm_mhz_most);
    widen(read_number(nvml, "nvmlDeviceGetTemperature", TEMPERATURE_GPU), first, &conditions->celsius_least,
          &conditions->celsius_most);
    conditions->memory_mhz = read_number(nvml, "nvmlDeviceGetClockInfo", CLOCK_MEMORY);
    if (read_long(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", &reasons) ||
        read_long(nvml, "nvmlDeviceGetCurrentClocksEventReasons", &reasons))
        conditions->held_back |= reasons;
    conditions->looks++;
}

void fa2i_held_back_text(uint64_t held_back, char *out, size_t out_bytes)
{
    /* Leaves out idle (1), clocks set by a user (2) and display clocks (256). */
    static const struct {
        uint64_t bit;
        const char *text;
    } reasons[] = {{0x4, "power cap"},
                   {0x8, "hardware slowdown"},
                   {0x10, "sync boost"},
                   {0x20, "thermal slowdown"},
                   {0x40, "thermal slowdown by hardware"},
                   {0x80, "power brake"}};
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if ((held_back & reasons[i].bit) != 0 && used < out_bytes)
            used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? ", " : "", reasons[i].text);
}

bool fa2i_nvml_energy(const fa2i_nvml *nvml, uint64_t *ret_mj)
{
    unsigned long long mj = 0;
    const bool counts = read_long(nvml, "nvmlDeviceGetTotalEnergyConsumption", &mj);
    *ret_mj = mj;
    return counts;
}
