/* SPDX-License-Identifier: MIT
 * The default problems. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

enum {
  F32 = 1 << RMS_F32,
  F64 = 1 << RMS_F64,
  HALF = 1 << RMS_BF16 | 1 << RMS_F16,
  ALL = F32 | F64 | HALF,
  NARROW = F32 | HALF
};

static const verify_template templates[] = {
    {"RMSNorm", "rms:fwd:%s:3x%s:out=y+stats", 1, ALL},
    {"RMSNorm", "rms:fwd:%s:3x%s:w=none:inplace", 1, ALL},
    {"RMSNorm", "rms:fwd:%s:3x%s:w=f32:bias:pad=3:data=lognormal", 1, ALL},
    {"RMSNorm", "rms:fwd:%s:3x%s:bias:data=cauchy:split:out=y+stats", 1, ALL},
    {"RMSNorm", "rms:fwd:%s:3x%s:off=1:eps=1e-5:data=exact", 1, ALL},
    {"RMSNorm", "rms:fwd:%s:3x%s:epsout:eps=1e-8:out=y+stats", 1, ALL},
    {"RMSNorm gradient", "rms:bwd:%s:5x%s:bias", 1, ALL},
    {"RMSNorm gradient", "rms:bwd:%s:5x%s:recompute:pad=1:data=lognormal", 1, ALL},
    {"RMSNorm gradient", "rms:bwd:%s:5x%s:w=none:inplace:data=cauchy", 1, ALL},
    {"RMSNorm gradient", "rms:bwd:%s:5x%s:w=f32:off=1:grad=same:split:bias", 1, ALL},
    {"RMSNorm gradient", "rms:bwd:%s:5x%s:epsout:recompute:bias:acc", 1, ALL},
    {"RMSNorm gradient", "rms:bwd:%s:130x%s:w=f32:out=dw+db:bias", 1, ALL},
    {"round before weight", "rms:fwd:%s:3x%s:round=before:bias", 1, ALL},
    {"round before weight", "rms:fwd:%s:3x%s:round=before:w=f32:bias", 1, ALL},
    {"round before weight", "rms:fwd:%s:3x%s:round=before:w=none", 1, ALL},
    {"round before weight gradient", "rms:bwd:%s:5x%s:round=before:bias:grad=f32", 1, NARROW},
    {"round before weight gradient", "rms:bwd:%s:5x%s:round=before:w=f32:recompute", 1, ALL},
    {"pRMSNorm", "prms:fwd:%s:3x%s:p=0.0625:out=y+stats", 1, ALL},
    {"pRMSNorm", "prms:fwd:%s:3x%s:p=0.3:idx:bias", 1, ALL},
    {"pRMSNorm gradient", "prms:bwd:%s:5x%s:p=0.25", 1, ALL},
    {"pRMSNorm gradient", "prms:bwd:%s:5x%s:p=0.3:idx:recompute:bias", 1, ALL},
    {"pRMSNorm gradient", "prms:bwd:%s:5x%s:p=0.5:epsout:eps=1e-3:split", 1, ALL},
    {"LayerNorm", "layer:fwd:%s:3x%s:bias:out=y+stats", 1, ALL},
    {"LayerNorm", "layer:fwd:%s:3x%s:w=none:data=hugemean:out=y+stats", 1, ALL},
    {"LayerNorm", "layer:fwd:%s:3x%s:w=f32:bias:data=lognormal:split", 1, ALL},
    {"LayerNorm", "layer:fwd:%s:3x%s:epsout:off=1:inplace", 1, ALL},
    {"LayerNorm gradient", "layer:bwd:%s:5x%s:bias", 1, ALL},
    {"LayerNorm gradient", "layer:bwd:%s:5x%s:recompute:w=none:data=hugemean", 1, ALL},
    {"LayerNorm gradient", "layer:bwd:%s:5x%s:bias:epsout:split:acc:w=f32", 1, ALL},
    {"LayerNorm gradient", "layer:bwd:%s:5x%s:round=before:bias:inplace", 1, ALL},
    {"residual", "rms:fwd:%s:3x%s:res:out=y+sum+stats", 1, ALL},
    {"residual", "rms:fwd:%s:3x%s:res:inplace:data=lognormal", 1, ALL},
    {"residual", "rms:fwd:%s:3x%s:res=f32:pad=2", 1, HALF},
    {"residual", "layer:fwd:%s:3x%s:res:bias", 1, ALL},
    {"residual", "prms:fwd:%s:3x%s:res=f32:p=0.3:idx:split", 1, HALF},
    {"residual gradient", "rms:bwd:%s:5x%s:res:dres", 1, ALL},
    {"residual gradient", "rms:bwd:%s:5x%s:res=f32:dres:out=dx+ds+dw:recompute", 1, HALF},
    {"residual gradient", "layer:bwd:%s:5x%s:res:dres:bias:acc", 1, ALL},
    {"residual gradient", "layer:bwd:%s:5x%s:res=f32:dres:out=ds:split", 1, HALF},
    {"gate", "rms:fwd:%s:3x%s:gate=after:out=y+stats", 1, ALL},
    {"gate", "rms:fwd:%s:3x%s:gate=after:round=before:inplace", 1, ALL},
    {"gate", "rms:fwd:%s:3x%s:gate=after:round=before:w=f32:act=sigmoid:bias", 1, ALL},
    {"gate", "rms:fwd:%s:3x%s:gate=after:act=sigmoid:w=none:data=huge", 1, ALL},
    {"gate", "layer:fwd:%s:3x%s:gate=after:bias:pad=3", 1, ALL},
    {"gate", "rms:fwd:%s:3x%s:gate=before:out=y+stats", 1, ALL},
    {"gate", "rms:fwd:%s:3x%s:gate=before:round=before:act=sigmoid:inplace", 1, ALL},
    {"gate", "rms:fwd:%s:3x%s:gate=before:groups=3:w=f32:off=1:split", 3, ALL},
    {"gate", "rms:fwd:%s:3x%s:gate=before:res:data=lognormal", 1, ALL},
    {"gate", "layer:fwd:%s:3x%s:gate=before:bias:out=y+stats", 1, ALL},
    {"gate", "prms:fwd:%s:3x%s:gate=before:p=0.3:idx", 1, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=after:bias", 1, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=after:round=before:recompute", 1, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=after:round=before:w=f32:act=sigmoid:bias:inplace", 1, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=after:act=sigmoid:off=1:data=huge", 1, ALL},
    {"gate gradient", "layer:bwd:%s:5x%s:gate=after:bias:acc:pad=2", 1, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=before", 1, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=before:round=before:act=sigmoid:recompute:inplace", 1, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=before:groups=3:w=f32:split:bias", 3, ALL},
    {"gate gradient", "rms:bwd:%s:5x%s:gate=before:res:dres:recompute:acc", 1, ALL},
    {"gate gradient", "layer:bwd:%s:5x%s:gate=before:bias:recompute", 1, ALL},
    {"gate gradient", "prms:bwd:%s:5x%s:gate=before:p=0.3:idx:recompute:out=dx+dz", 1, ALL},
    {"type of y", "rms:fwd:%s:5x%s:y=f32:w=f32:round=before:out=y+stats", 1, HALF},
    {"type of y", "rms:fwd:%s:3x%s:y=f32:round=before:bias:pad=3", 1, HALF},
    {"type of y", "rms:fwd:%s:3x%s:y=bf16:off=1", 1, NARROW},
    {"type of y", "rms:fwd:%s:3x%s:y=f16:w=none:data=lognormal:split", 1, NARROW},
    {"type of y", "layer:fwd:%s:3x%s:y=bf16:w=f32:bias:res", 1, NARROW},
    {"type of y", "layer:fwd:%s:3x%s:y=f16:gate=after:round=before", 1, NARROW},
    {"type of y", "rms:fwd:%s:3x%s:y=f32:res=f32:data=huge", 1, HALF},
    {"type of y gradient", "rms:bwd:%s:9x%s:y=f32:w=f32:round=before", 1, HALF},
    {"type of y gradient", "rms:bwd:%s:5x%s:y=f32:round=before:dydata=max:recompute:pad=1:out=dx", 1, HALF},
    {"type of y gradient", "rms:bwd:%s:5x%s:y=bf16:off=1:bias:split", 1, NARROW},
    {"type of y gradient", "prms:bwd:%s:5x%s:y=f16:p=0.3:out=dx+dw", 1, NARROW},
    {"type of y gradient", "layer:bwd:%s:5x%s:y=bf16:w=f32:bias", 1, NARROW},
    {"type of y gradient", "layer:bwd:%s:5x%s:y=f16:round=before:bias:res:dres:acc:dydata=lognormal", 1, NARROW},
    {"type of y gradient", "rms:bwd:%s:5x%s:y=f32:gate=after:round=before:data=small", 1, HALF},
    {"type of y gradient", "rms:bwd:%s:5x%s:y=bf16:gate=before:data=lognormal", 1, NARROW},
    {"statistics alone", "rms:fwd:%s:3x%s:out=stats:data=lognormal", 1, ALL},
    {"statistics alone", "layer:fwd:%s:3x%s:res:out=sum+stats", 1, ALL},
    {"statistics alone", "prms:fwd:%s:3x%s:p=0.3:idx:gate=before:out=stats:split", 1, ALL},
    {"gradients of statistics", "rms:bwd:%s:3x%s:w=none:of=stats:data=lognormal", 1, ALL},
    {"gradients of statistics", "layer:bwd:%s:5x%s:of=stats:recompute:dres:acc", 1, ALL},
    {"gradients of statistics", "prms:bwd:%s:4x%s:p=0.3:idx:of=stats:gate=before:pad=1", 1, ALL},
    {"gradients of statistics", "rms:bwd:%s:4x%s:of=y+stats:data=small:dydata=tiny:eps=1e-20:epsout", 1, ALL},
    {"gradients of statistics", "layer:bwd:%s:30x%s:of=y+stats:bias:inplace:dydata=zerorows:threads=3", 1, ALL},
    {"gradients of statistics", "rms:bwd:%s:2x3x%s:of=y+stats:perhead:round=before:steps=terms:data=zerorows", 1, ALL},
    {"gradients of statistics", "layer:bwd:%s:2x5x%s:of=y+stats:channels=first:bias:epsclamp", 1, NARROW},
    {"gradients of statistics", "layer:bwd:%s:1x2x12001:of=y+stats:channels=first:bias", 0, NARROW},
    {"rounded gain", "layer:fwd:%s:3x%s:off=1:gain=weight:bias", 1, ALL},
    {"rounded gain", "rms:fwd:%s:30x%s:off=1:gain=weight:w=f32", 1, ALL},
    {"rounded gain", "rms:fwd:%s:3x%s:off=0.3:gain=weight:round=before:bias:gate=after", 1, ALL},
    {"rounded gain gradient", "layer:bwd:%s:5x%s:off=1:gain=weight:bias", 1, ALL},
    {"rounded gain gradient", "rms:bwd:%s:30x%s:off=1:gain=weight:w=f32:round=before", 1, ALL},
    {"rounded gain gradient", "rms:bwd:%s:5x%s:off=0.3:gain=weight:gate=after:data=huge", 1, ALL},
    {"scale and shift", "layer:fwd:%s:5x3x%s:perhead:wstride=30000:off=1:bias:w=f32", 1, ALL},
    {"scale and shift", "layer:fwd:%s:5x3x%s:perhead:wstride=30000:off=1:bias:gain=weight:round=before:pad=2", 1, ALL},
    {"scale and shift", "rms:fwd:%s:1x5x%s:perhead:wstride=30001:off=1:bias:groups=2", 2, ALL},
    {"scale and shift gradient", "layer:bwd:%s:5x3x%s:perhead:wstride=30000:off=1:bias:w=f32", 1, ALL},
    {"scale and shift gradient", "layer:bwd:%s:5x3x%s:perhead:wstride=30000:off=1:bias:gain=weight:round=before", 1,
     ALL},
    {"scale and shift gradient", "rms:bwd:%s:1x5x%s:perhead:wstride=30001:off=1:bias:groups=2:gate=after", 2, ALL},
    {"bounded norm", "rms:fwd:%s:3x%s:epsclamp:out=y+stats", 1, ALL},
    {"bounded norm", "rms:fwd:%s:9x%s:epsclamp:eps=1:bias:round=before:gate=before", 1, ALL},
    {"bounded norm", "layer:fwd:%s:9x%s:epsclamp:eps=1:bias:out=y+stats", 1, ALL},
    {"bounded norm", "prms:fwd:%s:3x%s:epsclamp:p=0.3:data=tiny:split", 1, ALL},
    {"bounded norm gradient", "rms:bwd:%s:9x%s:epsclamp:eps=1:bias", 1, ALL},
    {"bounded norm gradient", "rms:bwd:%s:4x%s:epsclamp:data=mixed:recompute:gate=after", 1, ALL},
    {"bounded norm gradient", "prms:bwd:%s:5x%s:epsclamp:eps=1:p=0.3:idx:split:w=f32", 1, ALL},
    {"bounded norm gradient", "layer:bwd:%s:9x%s:epsclamp:eps=1:bias:split:acc", 1, ALL},
    {"bounded norm gradient", "layer:bwd:%s:4x%s:epsclamp:data=mixed:bias:recompute", 1, NARROW},
    {"rounded terms gradient", "rms:bwd:%s:5x%s:steps=terms:round=before:bias", 1, ALL},
    {"rounded terms gradient", "rms:bwd:%s:5x%s:steps=terms:res:dres:acc:recompute:data=lognormal", 1, ALL},
    {"rounded terms gradient", "rms:bwd:%s:5x%s:steps=terms:res=f32:dres:out=dx+ds:w=f32", 1, HALF},
    {"rounded terms gradient", "prms:bwd:%s:5x%s:steps=terms:p=0.3:idx:split:epsout:eps=1e-3", 1, ALL},
    {"rounded terms gradient", "rms:bwd:%s:5x%s:steps=terms:data=huge:dydata=tiny:w=none:inplace", 1, ALL},
    {"rounded terms gradient", "rms:bwd:%s:5x%s:steps=terms:data=tiny:eps=0:dydata=max:out=dx", 1, HALF},
    {"rounded rstd", "rms:fwd:%s:5x%s:steps=rstd:w=none:out=y+stats", 1, ALL},
    {"rounded rstd", "rms:fwd:%s:4x%s:steps=rstd:res:inplace:bias:data=mixed", 1, ALL},
    {"rounded rstd", "rms:fwd:%s:3x%s:steps=rstd:w=f32:y=f32:q=i8:out=y+q", 1, HALF},
    {"rounded rstd gradient", "rms:bwd:%s:5x%s:steps=rstd:w=none", 1, ALL},
    {"rounded rstd gradient", "rms:bwd:%s:5x%s:steps=rstd:recompute:bias:res:dres:acc", 1, ALL},
    {"rounded rstd gradient", "rms:bwd:%s:4x%s:steps=rstd:data=mixed:groups=2:recompute", 2, ALL},
    {"every step rounded", "rms:fwd:%s:5x%s:steps=all:out=y+stats", 1, ALL},
    {"every step rounded", "rms:fwd:%s:4x%s:steps=all:data=mixed:eps=0:w=f32:bias:y=f32", 1, HALF},
    {"every step rounded", "layer:fwd:%s:5x%s:steps=all:bias:out=y+stats", 1, ALL},
    {"every step rounded", "layer:fwd:%s:2x9x%s:steps=all:channels=first:bias:data=hugemean", 1, NARROW},
    {"every step rounded", "layer:fwd:%s:4x%s:steps=all:res=f32:groups=3:data=mixed", 3, HALF},
    {"every step rounded", "rms:fwd:%s:5x%s:steps=all:epsout:eps=1e-8:bias:out=y+stats", 1, ALL},
    {"every step rounded", "rms:fwd:%s:4x%s:steps=all:epsout:data=mixed:inplace:off=1", 1, ALL},
    {"every step rounded", "rms:fwd:%s:9x%s:steps=all:epsclamp:eps=1:out=y+stats", 1, ALL},
    {"every step rounded", "rms:fwd:%s:4x%s:steps=all:epsclamp:data=mixed:q=e4m3", 1, HALF},
    {"every step rounded gradient", "rms:bwd:%s:5x%s:steps=all:bias", 1, ALL},
    {"every step rounded gradient", "rms:bwd:%s:4x%s:steps=all:data=mixed:recompute:w=f32:grad=same:inplace", 1, ALL},
    {"every step rounded gradient", "layer:bwd:%s:5x%s:steps=all:bias", 1, ALL},
    {"every step rounded gradient", "layer:bwd:%s:2x7x%s:steps=all:channels=first:bias:data=hugemean:recompute", 1,
     NARROW},
    {"every step rounded gradient", "layer:bwd:%s:4x%s:steps=all:res:dres:acc:data=mixed:bias", 1, ALL},
    {"every step rounded gradient", "rms:bwd:%s:5x%s:steps=all:epsout:eps=1e-8:bias:recompute", 1, ALL},
    {"every step rounded gradient", "rms:bwd:%s:4x%s:steps=all:epsout:data=mixed:res=f32:dres:out=dx+ds", 1, HALF},
    {"every step rounded gradient", "rms:bwd:%s:9x%s:steps=all:epsclamp:eps=1:bias", 1, ALL},
    {"every step rounded gradient", "rms:bwd:%s:4x%s:steps=all:epsclamp:data=mixed:groups=2:recompute", 2, ALL},
    {"every step rounded gradient", "rms:bwd:%s:130x%s:steps=all:out=dw+db:bias:threads=3", 1, HALF},
    {"groups and heads", "rms:fwd:%s:2x%s:groups=3:bias:out=y+stats", 3, ALL},
    {"groups and heads", "layer:fwd:%s:2x3x%s:perhead:bias:pad=5", 1, ALL},
    {"groups and heads", "prms:fwd:%s:2x%s:groups=2:p=0.4:res", 2, ALL},
    {"groups and heads gradient", "rms:bwd:%s:4x%s:groups=3:recompute:bias", 3, ALL},
    {"groups and heads gradient", "rms:bwd:%s:5x3x%s:perhead:bias:pad=4", 1, ALL},
    {"groups and heads gradient", "layer:bwd:%s:4x2x%s:groups=2:perhead:bias:acc", 2, ALL},
    {"channels first", "layer:fwd:%s:1x17x%s:channels=first:bias:out=y+stats", 1, NARROW},
    {"channels first", "rms:fwd:%s:2x3x%s:channels=first:pad=3:res:inplace", 1, NARROW},
    {"channels first", "rms:fwd:%s:1x9x%s:channels=first:gate=after:round=before:data=mixed", 1, NARROW},
    {"channels first", "layer:fwd:%s:1x2x40001:channels=first:bias:out=y+stats", 0, NARROW},
    {"channels first gradient", "layer:bwd:%s:2x7x%s:channels=first:bias", 1, NARROW},
    {"channels first gradient", "rms:bwd:%s:1x11x%s:channels=first:pad=1:recompute:acc:threads=3", 1, NARROW},
    {"channels first gradient", "prms:bwd:%s:2x5x%s:channels=first:p=0.3:idx:inplace", 1, NARROW},
    {"channels first gradient", "rms:bwd:%s:1x2x12001:channels=first:gate=after:bias", 0, NARROW},
    {"end of the range", "rms:fwd:%s:3x%s:data=huge", 1, ALL},
    {"end of the range", "rms:fwd:%s:3x%s:data=tiny", 1, ALL},
    {"end of the range", "rms:fwd:%s:3x%s:data=tiny:eps=0", 1, ALL},
    {"end of the range", "layer:fwd:%s:3x%s:data=huge:bias", 1, ALL},
    {"end of the range", "layer:fwd:%s:3x%s:data=tiny", 1, ALL},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=huge:recompute", 1, ALL},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=tiny:recompute", 1, ALL},
    {"end of the range gradient", "layer:bwd:%s:5x%s:data=huge:bias:recompute", 1, ALL},
    {"end of the range gradient", "layer:bwd:%s:5x%s:data=tiny:bias:recompute", 1, ALL},
    {"end of the range gradient", "layer:bwd:%s:1x40x%s:perhead:bias:data=tiny", 1, HALF},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=huge:dydata=max:out=dx", 1, ALL},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=tiny:eps=0:dydata=least:bias", 1, ALL},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=small:eps=0:dydata=steps:recompute", 1, ALL},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=hugemean:dydata=max:w=f32:out=dx:pad=1", 1, ALL},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=huge:dydata=steps:w=none:out=dx", 1, ALL},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=small:eps=0:dydata=huge:out=dx:split", 1, NARROW},
    {"end of the range gradient", "rms:bwd:%s:5x%s:data=tiny:epsout:eps=0:dydata=tiny:round=before:recompute", 1, ALL},
    {"end of the range gradient", "prms:bwd:%s:5x%s:p=0.3:data=tiny:eps=0:dydata=steps:idx", 1, ALL},
    {"end of the range gradient", "layer:bwd:%s:5x%s:data=huge:dydata=max:out=dx:recompute", 1, ALL},
    {"end of the range gradient", "layer:bwd:%s:5x%s:data=small:eps=0:dydata=steps:bias", 1, ALL},
    {"end of the range gradient", "layer:bwd:%s:5x%s:dydata=least:bias:split:w=f32", 1, NARROW},
    {"quantised", "rms:fwd:%s:3x%s:q=i8", 1, NARROW},
    {"quantised", "rms:fwd:%s:3x%s:q=i8:qblock=tensor:res:inplace:out=y+sum+q:data=lognormal", 1, NARROW},
    {"quantised", "prms:fwd:%s:4x%s:q=i8:qblock=8:p=0.3:idx:out=y+stats+q:data=mixed", 8, NARROW},
    {"quantised", "rms:fwd:%s:3x%s:q=e4m3:res:out=y+sum+stats+q", 1, NARROW},
    {"quantised", "rms:fwd:%s:3x%s:q=e4m3:qblock=tensor:bias:w=f32:threads=2", 1, NARROW},
    {"quantised", "rms:fwd:%s:3x%s:q=e4m3:qblock=16:groups=2:gate=after", 32, NARROW},
    {"quantised", "rms:fwd:%s:4x%s:q=e4m3:data=nanrows:out=y+q", 1, NARROW},
    {"quantised", "layer:fwd:%s:3x%s:q=e5m2:bias:out=y+q:pad=3", 1, NARROW},
    {"quantised", "rms:fwd:%s:2x2x%s:q=e5m2:qblock=tensor:perhead:data=tiny:eps=0:out=y+q", 1, NARROW},
    {"quantised", "rms:fwd:%s:3x%s:q=q8_0:round=before:out=y+q", 32, NARROW},
    {"quantised", "rms:fwd:%s:3x%s:q=q8_0:data=zerorows:qleast=1e-5", 32, NARROW},
    {"threads", "rms:fwd:%s:40x%s:threads=3", 1, ALL},
    {"threads gradient", "rms:bwd:%s:40x%s:threads=3:bias", 1, ALL},
};

static const int64_t short_sizes[] = {1, 33, 128, 257};
static const int64_t full_sizes[] = {1,  2,   15,  16,  17,  31,   32,   33,   63,  64,
                                     65, 100, 127, 128, 129, 1000, 4095, 4096, 4097};

const verify_template *verify_suite_templates(int *count) {
  *count = (int)(sizeof templates / sizeof *templates);
  return templates;
}

const int64_t *verify_suite_sizes(int full, int *count) {
  *count = (int)(full ? sizeof full_sizes / sizeof *full_sizes : sizeof short_sizes / sizeof *short_sizes);
  return full ? full_sizes : short_sizes;
}

/* The two places of a template, filled by hand: a format that is not a literal cannot be checked by the compiler. */
static void fill_template(const char *text, const char *first, const char *second, char *out, size_t size) {
  size_t used = 0;
  const char *next = first;
  for (; *text && used + 1 < size; text++) {
    if (text[0] == '%' && text[1] == 's') {
      used += (size_t)snprintf(out + used, size - used, "%s", next);
      next = second;
      text++;
    } else {
      out[used++] = *text;
    }
  }
  out[used] = '\0';
}

int verify_suite_problem(const verify_template *t, rms_dtype dtype, int64_t cols, verify_problem *problem) {
  char text[VERIFY_TEXT_MAX], size[24], message[256];
  if (!(t->types >> dtype & 1) || (!t->multiple && cols > 1)) return 0;
  snprintf(size, sizeof size, "%lld", (long long)(cols * t->multiple));
  fill_template(t->text, verify_dtype_name(dtype), size, text, sizeof text);
  if (verify_problem_parse(text, problem, message, sizeof message)) {
    fprintf(stderr, "rmsnorm: %s: %s\n", text, message);
    abort();
  }
  return 1;
}
