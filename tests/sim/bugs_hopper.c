/*
 * Planted bugs: the families for wgmma and TMA.
 */
#include "bugs.h"

static const bug bugs[] = {
    {"none, wgmma", "h200", {"fwd_sm90 ", "d=64", NULL}, "", "", 1, "Sq=200,causal=1", NULL, NULL},
};

const bug_list hopper_bugs = {bugs, sizeof bugs / sizeof *bugs};
