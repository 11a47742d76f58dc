#include "version.h"

#ifndef STREAMD_COMMIT
#define STREAMD_COMMIT ""
#endif

const char *streamd_commit(void) { return STREAMD_COMMIT; }
