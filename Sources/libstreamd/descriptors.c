/* Descriptors that come with the replies to requests for maps (SCM_RIGHTS).
 *
 * They come with the first byte of a reply, but the kernel only tells with which read, which may begin before that byte. So a reply
 * has those of the read that contains its first byte. What no reply takes is closed: between two reads only those are kept whose
 * read contains the start of an incomplete frame. Without a request for a map the kernel refuses them (SO_PASSRIGHTS, from
 * Linux 6.16 on). All are received, because the kernel would wait for a lingering socket among those for which there is no room. */
#include "internal.h"

#include <errno.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum { MOST_OF_A_MESSAGE = 253 }; /* SCM_MAX_FD of the kernel */

/* Without a wait, if it is a socket that lingers. */
static void close_foreign(int descriptor) {
  struct linger off = {0, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &off, sizeof off);
  close(descriptor);
}

static void close_all(int descriptors[2]) {
  for (int i = 0; i < 2; i++) {
    if (descriptors[i] >= 0) close_foreign(descriptors[i]);
    descriptors[i] = -1;
  }
}

void descriptors_admit(sdm *c, bool are_admitted) {
  int on = are_admitted;
  setsockopt(c->socket, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof on);
}

ssize_t descriptors_receive(sdm *c, void *place, size_t room) {
  struct passed *p = &c->passed[1];
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(MOST_OF_A_MESSAGE * sizeof(int))];
  } control;
  struct iovec part = {.iov_base = place, .iov_len = room};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  ssize_t count = recvmsg(c->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  size_t number = 0, kept = 0;
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
    number = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  if (!number && !(message.msg_flags & MSG_CTRUNC)) return count;
  if (c->asks) {
    *p = (struct passed){.is_there = true, .descriptors = {-1, -1}, .start = c->received, .end = c->received + (uint64_t)count};
    kept = number < 2 ? number : 2;
    if (kept) memcpy(p->descriptors, CMSG_DATA(rights), kept * sizeof(int));
    p->is_cut = (message.msg_flags & MSG_CTRUNC) && kept < 2; /* this process has no room for them */
  }
  for (size_t i = kept; i < number; i++) {
    int other;
    memcpy(&other, CMSG_DATA(rights) + i * sizeof other, sizeof other);
    close_foreign(other);
  }
  return count;
}

int descriptors_take(sdm *c, int descriptors[2]) {
  descriptors[0] = descriptors[1] = -1;
  for (int i = 0; i < 2; i++) {
    struct passed *p = &c->passed[i];
    if (!p->is_there || c->frame_at < p->start || c->frame_at >= p->end) continue;
    p->is_there = false;
    if (p->is_cut) close_all(p->descriptors);
    memcpy(descriptors, p->descriptors, sizeof p->descriptors);
    return p->is_cut ? -EMFILE : 0;
  }
  return 0;
}

void descriptors_keep(sdm *c, uint64_t at) {
  for (int i = 0; i < 2; i++) {
    struct passed *p = &c->passed[i];
    if (!p->is_there || (at >= p->start && at < p->end)) continue;
    p->is_there = false;
    close_all(p->descriptors);
  }
  if (!c->passed[1].is_there) return;
  c->passed[0] = c->passed[1]; /* reads do not overlap: the other one is closed */
  c->passed[1].is_there = false;
}

void descriptors_close(sdm *c) { descriptors_keep(c, UINT64_MAX); }
