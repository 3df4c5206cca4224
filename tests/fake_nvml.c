/* An NVML with one device, of the UUID 00 01 02 ... 0f, for test_nvml. It gets warmer and slower with each look. */
#include <stdio.h>
#include <string.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *out, unsigned bytes);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz);
int nvmlDeviceGetTemperature(void *device, int which, unsigned *celsius);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj);

static int the_device;
static unsigned looks;

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *out, unsigned bytes)
{
    snprintf(out, bytes, "580.1");
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    if (strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f") != 0)
        return 6;
    *device = &the_device;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    *mhz = which == 1 ? 1980 - 100 * looks : 2619;
    return device == &the_device ? 0 : 2;
}

int nvmlDeviceGetTemperature(void *device, int which, unsigned *celsius)
{
    *celsius = 40 + 5 * looks++;
    return device == &the_device && which == 0 ? 0 : 2;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    *reasons = looks == 2 ? 0x24 : 0x1;
    return device == &the_device ? 0 : 2;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj)
{
    *mj = 1000ull * looks;
    return device == &the_device ? 0 : 2;
}
