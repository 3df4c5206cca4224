/* NVML's facts about a card, from a library in place of NVML (FA2_NVML_LIBRARY); and without any. */
#include <stdlib.h>
#include "check.h"
#include "tuner/bench/nvml.h"

static const unsigned char uuid[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static void test_looks(void)
{
    fa2i_nvml nvml;
    fa2i_conditions seen = {0};
    uint64_t mj = 0;
    fa2i_nvml_open(uuid, &nvml);
    CHECK(nvml.device != NULL);
    CHECK_STR(nvml.driver, "580.1");
    for (int i = 0; i < 3; i++)
        fa2i_nvml_look(&nvml, &seen);
    CHECK_EQ(seen.looks, 3);
    CHECK_EQ(seen.sm_mhz_least, 1780);
    CHECK_EQ(seen.sm_mhz_most, 1980);
    CHECK_EQ(seen.memory_mhz, 2619);
    CHECK_EQ(seen.celsius_least, 40);
    CHECK_EQ(seen.celsius_most, 50);
    CHECK_EQ(seen.held_back, 0x25);
    CHECK(fa2i_nvml_energy(&nvml, &mj) && mj == 3000);
    fa2i_nvml_close(&nvml);
    CHECK(nvml.device == NULL);
}

static void test_reasons(void)
{
    char text[128], little[12];
    fa2i_held_back_text(0x25, text, sizeof text);
    CHECK_STR(text, "power cap, thermal slowdown");
    fa2i_held_back_text(0x103, text, sizeof text); /* idle, set by a user, display */
    CHECK_STR(text, "");
    fa2i_held_back_text(0xff, little, sizeof little);
    CHECK_STR(little, "power cap, ");
}

static void test_absent(void)
{
    static const unsigned char other[16] = {1};
    fa2i_nvml nvml;
    fa2i_conditions seen = {0};
    uint64_t mj = 0;
    fa2i_nvml_open(other, &nvml);
    CHECK(nvml.device == NULL);
    CHECK_CONTAINS(nvml.why, "does not know this device");
    fa2i_nvml_look(&nvml, &seen);
    CHECK(seen.looks == 0 && !fa2i_nvml_energy(&nvml, &mj));
    fa2i_nvml_close(&nvml);
    setenv("FA2_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1", 1);
    fa2i_nvml_open(uuid, &nvml);
    CHECK(nvml.device == NULL);
    CHECK_CONTAINS(nvml.why, "/nonexistent/libnvidia-ml.so.1");
    fa2i_nvml_look(&nvml, &seen);
    CHECK(seen.looks == 0 && !fa2i_nvml_energy(&nvml, &mj));
    fa2i_nvml_close(&nvml);
}

int main(void)
{
    test_looks();
    test_reasons();
    test_absent();
    return check_done();
}
