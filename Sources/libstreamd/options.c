/* sdm_options, of subscriptions and of maps. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

/* Whether the text is one JSON object, as far as its braces tell. */
static bool is_object(const char *text) {
  int depth = 0;
  bool in_string = false;
  const char *p = text + strspn(text, " \t\r\n");
  if (*p != '{') return false;
  for (; *p; p++) {
    if (in_string) {
      if (*p == '\\' && p[1]) p++;
      else if (*p == '"') in_string = false;
    } else if (*p == '"') {
      in_string = true;
    } else if (*p == '{' || *p == '[') {
      depth++;
    } else if ((*p == '}' || *p == ']') && --depth == 0) {
      return p[1 + strspn(p + 1, " \t\r\n")] == 0;
    }
  }
  return false;
}

int options_read(sdm *c, const sdm_options *given, sdm_options *o) {
  *o = (sdm_options)SDM_OPTIONS_INIT;
  if (!given) return 0;
  if (given->size < sizeof given->size || given->size > 4096) return fail(c, -EINVAL, "the size of sdm_options is wrong");
  for (size_t i = sizeof *o; i < given->size; i++)
    if (((const uint8_t *)given)[i]) return fail(c, -EINVAL, "sdm_options has a member that this version does not know");
  memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
  if ((unsigned)o->from > SDM_FROM_LAST) return fail(c, -EINVAL, "sdm_options.from is %d", (int)o->from);
  if (o->from == SDM_FROM_LAST && !o->since) return fail(c, -EINVAL, "sdm_options.since is 0 last events");
  if ((unsigned)o->on_lag > SDM_ON_LAG_FAIL) return fail(c, -EINVAL, "sdm_options.on_lag is %d", (int)o->on_lag);
  if (o->where && (strlen(o->where) > 8000 || !is_object(o->where)))
    return fail(c, -EINVAL, "the filter is no JSON object of at most 8,000 bytes");
  return 0;
}

int options_from(sdm *c, char from[FROM_BYTES], const sdm_options *o) {
  static const char *const names[] = {"\"replay\"", "\"latest\"", "\"new\"", "\"state\""};
  time_t seconds = (time_t)(o->since / 1000000);
  struct tm parts;
  switch (o->from) {
    case SDM_FROM_ID: snprintf(from, FROM_BYTES, "%llu", (unsigned long long)o->since); return 0;
    case SDM_FROM_LAST: snprintf(from, FROM_BYTES, "-%llu", (unsigned long long)o->since); return 0;
    case SDM_FROM_AGO: /* in whole milliseconds, rounded up */
      snprintf(from, FROM_BYTES, "\"-%llums\"", (unsigned long long)(o->since / 1000 + (o->since % 1000 != 0)));
      return 0;
    case SDM_FROM_TIME:
      if (!gmtime_r(&seconds, &parts) || parts.tm_year + 1900 > 9999)
        return fail(c, -EINVAL, "sdm_options.since is no time before the year 10000");
      size_t end = strftime(from, FROM_BYTES, "\"%Y-%m-%dT%H:%M:%S", &parts);
      snprintf(from + end, FROM_BYTES - end, ".%06uZ\"", (unsigned)(o->since % 1000000));
      return 0;
    case SDM_FROM_REPLAY: case SDM_FROM_LATEST: case SDM_FROM_NEW: case SDM_FROM_STATE:
      snprintf(from, FROM_BYTES, "%s", names[o->from]);
  }
  return 0;
}
