// Tells Swift what libstreamd says of reasons.
#include <stdint.h>

// The name of a reason of streamd.h; NULL: there is none with this number.
const char *c_reason_name(int reason);

// 0 never, 1 later, 2 on a new connection.
int c_reason_retry(int reason);

// The reason of an ERROR; 0: unknown.
int c_reason_of_error(uint32_t code, const char *sentence);
