/*
 * Planted bugs: the families for wgmma and TMA.
 */
#include "bugs.h"

static const bug bugs[] = {
    {"none, wgmma", "h200", {"fwd_sm90 ", "groups=2", NULL}, "", "", 1, "Sq=200,causal=1", NULL, NULL},
    {"none, wgmma 128", "h200", {"fwd_sm90 ", "groups=2", NULL}, "", "", 1, "Sq=300,Sk=500,D=128", NULL, NULL},
    {"none, wgmma turns", "h200", {"fwd_sm90 ", "turns=1", NULL}, "", "", 1, "Sq=300,Sk=700,D=128,causal=1", NULL, NULL},
    {"none, wgmma persistent 1", "h200", {"fwd_sm90 ", "persistent=1", NULL}, "", "", 1, "Sq=300,causal=1", NULL, NULL},
    {"none, wgmma persistent 2", "h200", {"fwd_sm90 ", "persistent=2", NULL}, "", "", 1, "Sq=300,causal=1", NULL, NULL},
    {"none, wgmma alibi", "h200", {"fwd_sm90 ", "groups=2", NULL}, "", "", 1, "Sq=300,causal=1,alibi=1", NULL, NULL},
    {"none, wgmma sinks", "h200", {"fwd_sm90 ", "groups=2", NULL}, "", "", 1, "Sq=300,causal=1,sinks=1", NULL, NULL},
    {"none, wgmma window", "h200", {"fwd_sm90 ", "groups=2", NULL}, "", "", 1, "Sq=300,causal=1,window=1,Wl=77", NULL, NULL},
    {"none, wgmma dropout", "h200", {"fwd_sm90 ", "groups=2", NULL}, "", "", 1, "Sq=300,dropout=1", NULL, NULL},
    {"none, wgmma softcap", "h200", {"fwd_sm90 ", "groups=2", NULL}, "", "", 1, "Sq=300,softcap=1", NULL, NULL},
    {"none, wgmma packed", "h200", {"fwd_sm90 ", "groups=", NULL}, "", "", 1, "B=5,Sq=200,Tq=600,Tk=700", NULL, NULL},
    {"none, wgmma bias", "h200", {"fwd_sm90 ", "groups=", NULL}, "", "", 1, "Sq=300,bias=fp16", NULL, NULL},
    {"none, wgmma bias 256", "h200", {"fwd_sm90 ", "groups=", NULL}, "", "", 1, "Sq=300,Sk=333,D=256", NULL, NULL},
    {"none, wgmma 40", "h200", {"fwd_sm90 ", "groups=", NULL}, "", "", 1, "Sq=300,Sk=333,D=40", NULL, NULL},
    {"none, wgmma bf16", "h200", {"fwd_sm90 ", "groups=", NULL}, "", "", 1, "Sq=300,Sk=333,dtype=bf16", NULL, NULL},
    {"none, latent", "h200", {"fwd_splitkv_sm90 ", NULL, NULL}, "", "", 1, "Sq=3,Sk=1500,D=576,Dv=512,v_in_k=1", NULL, NULL},
    {"none, backward wgmma", "h200", {"bwd_sm90 ", "br=", NULL}, "", "", 1, "op=backward,Sq=300", NULL, NULL},
    {"none, backward wgmma causal 128", "h200", {"bwd_sm90 ", "br=", NULL}, "", "", 1, "op=backward,Sq=300,D=128,causal=1", NULL, NULL},
    {"none, backward wgmma det", "h200", {"bwd_sm90 ", "br=", NULL}, "", "", 1, "op=backward,Sq=300,causal=1,deterministic=1", NULL, NULL},
    {"none, backward wgmma det full", "h200", {"bwd_sm90 ", "br=", NULL}, "", "", 1, "op=backward,Sq=300,deterministic=1", NULL, NULL},
    {"none, backward wgmma split", "h200", {"bwd_sm90 ", "split=1", NULL}, "", "", 1, "op=backward,Sq=300,Sk=100,causal=1", NULL, NULL},
    {"none, backward wgmma packed", "h200", {"bwd_sm90 ", "br=", NULL}, "", "", 1, PACKED, NULL, NULL},
    {"none, backward wgmma dropout", "h200", {"bwd_sm90 ", "br=", NULL}, "", "", 1, "op=backward,Sq=300,dropout=1,alibi=1,sinks=1", NULL, NULL},
    {"none, backward wgmma window", "h200", {"bwd_sm90 ", "br=", NULL}, "", "", 1, CAPPED, NULL, NULL},
};

const bug_list hopper_bugs = {bugs, sizeof bugs / sizeof *bugs};
