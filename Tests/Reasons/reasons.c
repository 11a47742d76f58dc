#define _GNU_SOURCE
#include "include/reasons.h"

#include "../../Sources/libstreamd/last-release.c"
#include "../../Sources/libstreamd/reason.c"

const char *c_reason_name(int reason) { return reason_name(reason); }

int c_reason_retry(int reason) { return (int)retry_of(reason); }

int c_reason_of_error(uint32_t code, const char *sentence) { return failure_of(code, sentence).reason; }
