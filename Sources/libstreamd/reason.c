/* Reasons of the daemon: their errno, and whether a request is made again. See WIRE.md, "Reasons". */
#include "internal.h"

#include <errno.h>

static const struct meaning {
  const char *name;
  int code; /* a negative errno */
  enum retry retry;
} meanings[] = {
    [SDM_REASON_NO_STREAM] = {"no-stream", -ENOENT, NEVER},
    [SDM_REASON_MAY_NOT_READ] = {"may-not-read", -EACCES, NEVER},
    [SDM_REASON_MAY_NOT_WRITE] = {"may-not-write", -EACCES, NEVER},
    [SDM_REASON_MAY_NOT_COMMAND] = {"may-not-command", -EACCES, NEVER},
    [SDM_REASON_TAKES_NO_VALUES] = {"takes-no-values", -EOPNOTSUPP, NEVER},
    [SDM_REASON_NO_SPACE] = {"no-space", -EDQUOT, NEVER},
    [SDM_REASON_NO_KEY] = {"no-key", -ENOENT, NEVER},
    [SDM_REASON_NO_EFFECT] = {"no-effect", -EOPNOTSUPP, NEVER},
    [SDM_REASON_TOO_MANY_REQUESTS] = {"too-many-requests", -EDQUOT, NEVER},
    [SDM_REASON_TOO_MANY_VIEWS] = {"too-many-views", -EDQUOT, NEVER},
    [SDM_REASON_TOO_MANY_PUBLISHERS] = {"too-many-publishers", -EDQUOT, NEVER},
    [SDM_REASON_TOO_MANY_MAPS] = {"too-many-maps", -EDQUOT, LATER},
    [SDM_REASON_NO_DESCRIPTORS] = {"no-descriptors", -EDQUOT, LATER},
    [SDM_REASON_NO_MEMORY] = {"no-memory", -EDQUOT, NEVER},
    [SDM_REASON_TOO_MANY_FILTERS] = {"too-many-filters", -EINVAL, NEVER},
    [SDM_REASON_FILTERS_TOO_LARGE] = {"filters-too-large", -EDQUOT, NEVER},
    [SDM_REASON_INVALID_REQUEST] = {"invalid-request", -EINVAL, NEVER},
    [SDM_REASON_UNKNOWN_POSITION] = {"unknown-position", -EINVAL, NEVER},
    [SDM_REASON_NO_STATE] = {"no-state", -EINVAL, NEVER},
    [SDM_REASON_TOO_LARGE] = {"too-large", -EMSGSIZE, NEVER},
    [SDM_REASON_NOT_JSON] = {"not-json", -EINVAL, NEVER},
    [SDM_REASON_NOT_MAPPED] = {"not-mapped", -EOPNOTSUPP, NEVER},
    [SDM_REASON_NOT_MAPPABLE] = {"not-mappable", -EOPNOTSUPP, NEVER},
    [SDM_REASON_FAILED] = {"failed", -EIO, NEVER},
    [SDM_REASON_LAGGED] = {"lagged", -ENOBUFS, NEVER},
    [SDM_REASON_EVENT_LOST] = {"event-lost", -ENOBUFS, NEVER},
    [SDM_REASON_STALLED] = {"stalled", -ENOBUFS, NEVER},
    [SDM_REASON_STOPPING] = {"stopping", -ECANCELED, RECONNECT},
    [SDM_REASON_RESTARTING] = {"restarting", -ECANCELED, LATER},
    [SDM_REASON_KICKED] = {"kicked", -ECANCELED, RECONNECT},
    [SDM_REASON_TOKEN_REMOVED] = {"token-removed", -ECANCELED, RECONNECT},
    [SDM_REASON_NO_CAPACITY] = {"no-capacity", -ECANCELED, RECONNECT},
    [SDM_REASON_REMOVED] = {"removed", -ECANCELED, NEVER},
    [SDM_REASON_ENDED] = {"ended", -ECANCELED, NEVER},
    [SDM_REASON_TAKES_NO_MORE_VALUES] = {"takes-no-more-values", -ECANCELED, NEVER},
    [SDM_REASON_VALUES_LOST] = {"values-lost", -ECANCELED, LATER},
    [SDM_REASON_NAME_IN_USE] = {"name-in-use", -ECANCELED, LATER},
    [SDM_REASON_MAP_REMOVED] = {"map-removed", -ECANCELED, NEVER},
    [SDM_REASON_STATE_LOST] = {"state-lost", -ECANCELED, LATER},
    [SDM_REASON_TYPE_CHANGED] = {"type-changed", -ECANCELED, NEVER},
    [SDM_REASON_INVALID_TOKEN] = {"invalid-token", -EACCES, NEVER},
    [SDM_REASON_INVALID_AUTHENTICATION] = {"invalid-authentication", -ECONNREFUSED, NEVER},
    [SDM_REASON_TOO_MANY_CONNECTIONS] = {"too-many-connections", -EDQUOT, RECONNECT},
    [SDM_REASON_NOT_CONFIGURED] = {"not-configured", -ECONNREFUSED, RECONNECT},
    [SDM_REASON_TOO_MUCH_INPUT] = {"too-much-input", -EDQUOT, NEVER},
    [SDM_REASON_REQUEST_TOO_LARGE] = {"request-too-large", -EMSGSIZE, RECONNECT},
    [SDM_REASON_TOO_MANY_STREAMS] = {"too-many-streams", -EDQUOT, LATER},
    [SDM_REASON_OTHER_REQUEST] = {"other-request", -EOPNOTSUPP, NEVER},
    [SDM_REASON_NOT_KEPT] = {"not-kept", -EDQUOT, NEVER},
};

/* NULL: a reason of a later daemon, or none. */
static const struct meaning *meaning_of(int reason) {
  bool is_known = reason > 0 && (size_t)reason < sizeof meanings / sizeof meanings[0];
  return is_known ? &meanings[reason] : NULL;
}

const char *reason_name(int reason) {
  const struct meaning *meaning = meaning_of(reason);
  return meaning ? meaning->name : NULL;
}

enum retry retry_of(int reason) {
  const struct meaning *meaning = meaning_of(reason);
  return meaning ? meaning->retry : NEVER;
}

struct failure failure_of(uint32_t code, const char *sentence) {
  struct failure f = {.code = code, .reason = 0, .sentence = sentence};
  if (code <= 0xffff) {
    f.reason = reason_of_last_release(code, sentence);
  } else {
    f.code = code >> 16;
    f.reason = (int)(code & 0xffff);
  }
  return f;
}

int errno_of(const struct failure *f) {
  const struct meaning *meaning = meaning_of(f->reason);
  if (meaning) return meaning->code;
  switch (f->code) {
    case 0x202: return -EDQUOT;
    case 0x203: return -ECANCELED;
    case 0x204: return -EINVAL;
    case 0x301: return -ENOBUFS;
    default: return -EIO;
  }
}

/* Of an ERROR for the whole connection. 0: a loss, which a new connection may resolve. */
int errno_of_close(const struct failure *f) {
  switch (f->code) {
    case 0x003: return meaning_of(f->reason) ? errno_of(f) : -ECONNREFUSED;
    case 0x101: return f->reason == SDM_REASON_REQUEST_TOO_LARGE ? 0 : f->reason == SDM_REASON_TOO_MUCH_INPUT ? -EDQUOT : -EPROTO;
    case 0x102: return 0;
    default: return -EPROTO;
  }
}
