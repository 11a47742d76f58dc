#include <jq.h>
#include <jv.h>
