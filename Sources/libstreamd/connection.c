/* The socket, its timer, and the epoll descriptor that has both: the descriptor that a program polls.
 *
 * sdm_next() makes no system call, so the credit that it renews is sent by the next sdm_process(). If the daemon has no credit
 * left, nothing else would wake the program: the timer then makes the descriptor readable, at once if events have been taken since
 * the last sdm_process(), else after 1 ms to 1 s ("nudge"). sdm_wait() knows whether there is work, and ignores it. */
#include "internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_USEC UINT64_C(10000000)
#define NEVER UINT64_MAX
enum { FIRST_DELAY_USEC = 200000, LONGEST_DELAY_USEC = 5000000, LONGEST_NUDGE_USEC = 1000000 };

/* --- time --- */

uint64_t deadline(uint64_t usec) {
  uint64_t now = now_usec();
  return usec > NEVER - now ? NEVER : now + usec;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* When sdm_process() has work without anything received. */
static uint64_t next_deadline(const sdm *c) {
  switch (c->state) {
    case OVER: return NEVER;
    case CONNECTING: return c->connect_until;
    case WAITING: return c->retry_at;
    case CONNECTED: break;
  }
  uint64_t next = c->keepalive_at;
  if (c->silent_since) next = least(next, c->silent_since + SDM_LIFETIME_USEC - SDM_KEEPALIVE_USEC);
  for (const struct request *r = c->requests; r; r = r->next)
    if (r->phase == READY && r->retry_at) next = least(next, r->retry_at);
  return next;
}

/* When to make the descriptor readable because taken events may have made work. */
static uint64_t next_nudge(sdm *c, uint64_t now) {
  if (c->state == OVER) return c->is_reported ? NEVER : now;
  bool awaits = c->is_paused;
  for (const struct request *r = c->requests; r && !awaits; r = r->next)
    awaits = r->kind == SUBSCRIPTION && subscription_awaits_reader((const sdm_subscription *)r);
  bool has_taken = c->taken != c->taken_before;
  c->taken_before = c->taken;
  if (!awaits || has_taken || !c->nudge_delay) {
    c->nudge_delay = awaits ? 1000 : 0;
    return awaits ? now : NEVER;
  }
  uint64_t delay = c->nudge_delay;
  c->nudge_delay = least(delay * 2, LONGEST_NUDGE_USEC);
  return now + delay;
}

static void set_timer(sdm *c, uint64_t at, uint64_t now) {
  if (at == c->timer_at && (at > now || at == NEVER)) return;
  struct itimerspec setting = {0};
  if (at != NEVER) {
    setting.it_value.tv_sec = (time_t)(at / 1000000);
    setting.it_value.tv_nsec = (long)(at % 1000000) * 1000 + 1; /* 0 would stop the timer */
  }
  timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &setting, NULL);
  c->timer_at = at;
}

/* --- the socket --- */

static void update_interest(sdm *c) {
  if (c->socket < 0) return;
  uint32_t wanted = 0;
  if (c->state == CONNECTING) wanted = EPOLLOUT;
  if (c->state == CONNECTED && !c->is_paused) wanted |= EPOLLIN;
  bool has_unsent = buffer_size(&c->output) || c->has_values;
  if (c->state == CONNECTED && has_unsent && !c->write_failed) wanted |= EPOLLOUT;
  if (wanted == c->interest) return;
  struct epoll_event event = {.events = wanted, .data.fd = c->socket};
  int operation = !wanted ? EPOLL_CTL_DEL : c->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  epoll_ctl(c->epoll, operation, c->socket, &event);
  c->interest = wanted;
}

bool connection_flush(sdm *c) {
  if (c->state != CONNECTED) return false;
  bool did = false;
  while (buffer_size(&c->output) && !c->write_failed) {
    ssize_t count = send(c->socket, buffer_content(&c->output), buffer_size(&c->output), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      did = true;
      buffer_consume(&c->output, (size_t)count);
    } else if (count == 0 || errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      c->write_failed = true; /* what the daemon sent before can still be read, until its end */
    }
  }
  if (c->write_failed || (!buffer_size(&c->output) && c->output.capacity > OUTPUT_ROOM * 2 && !c->output.failed))
    buffer_clear(&c->output);
  update_interest(c);
  return did;
}

static void close_socket(sdm *c) {
  if (c->socket < 0) return;
  /* A child that has a copy of the socket would keep it in the epoll descriptor. */
  if (c->interest) epoll_ctl(c->epoll, EPOLL_CTL_DEL, c->socket, NULL);
  close(c->socket);
  c->socket = -1;
  c->interest = 0;
  descriptors_close(c);
  buffer_clear(&c->input);
  buffer_clear(&c->output);
}

/* 0.1 s to 5 s: half of a delay is random, so that the clients of one daemon do not connect at the same time. */
static uint64_t delay_after_loss(sdm *c) {
  unsigned doublings = c->losses < 6 ? c->losses : 6;
  uint64_t longest = least((uint64_t)FIRST_DELAY_USEC << doublings, LONGEST_DELAY_USEC);
  c->random = c->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return longest / 2 + (c->random >> 33) % (longest / 2 + 1);
}

static void lose(sdm *c, const char *reason) {
  close_socket(c);
  c->is_paused = false;
  protocol_lost(c, reason);
  if (c->state == OVER) return;
  c->state = WAITING;
  c->retry_at = now_usec() + delay_after_loss(c);
  c->losses++;
}

static void end(sdm *c, int code, const char *reason) {
  protocol_over(c, code, reason);
  close_socket(c);
}

/* --- connecting --- */

/* While no daemon listens at a port of this host, the kernel may give that port to this socket, which is then its own peer. */
static int check_peer(sdm *c) {
  struct sockaddr_storage own, peer;
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (getsockname(c->socket, (struct sockaddr *)&own, &own_size) < 0) return 0;
  if (getpeername(c->socket, (struct sockaddr *)&peer, &peer_size) < 0) return 0;
  if (own_size != peer_size || memcmp(&own, &peer, own_size) != 0) return 0;
  close_socket(c);
  return -ECONNREFUSED;
}

/* Returns 0 if the connection is made, 1 if it is being made, or a negative errno. */
static int begin_connect(sdm *c) {
  const struct sockaddr *address = (const struct sockaddr *)&c->addresses[c->address_index];
  c->socket = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (c->socket < 0) return -errno;
  descriptors_admit(c, false);
  if (connect(c->socket, address, c->address_size[c->address_index]) == 0) return check_peer(c);
  if (errno == EINPROGRESS || errno == EINTR) return 1;
  int code = -errno;
  close_socket(c);
  return code;
}

/* As above, for a connection that is being made. */
static int check_connect(sdm *c) {
  struct pollfd descriptor = {.fd = c->socket, .events = POLLOUT};
  if (poll(&descriptor, 1, 0) <= 0) return 1;
  int code = 0;
  socklen_t size = sizeof code;
  if (getsockopt(c->socket, SOL_SOCKET, SO_ERROR, &code, &size) < 0) code = errno;
  if (code == 0) return check_peer(c);
  close_socket(c);
  return -code;
}

static void did_connect(sdm *c, uint64_t now) {
  int on = 1;
  if (c->addresses[0].ss_family != AF_UNIX) setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  c->state = CONNECTED;
  c->is_closed = c->write_failed = false;
  c->next_id = 1;
  c->received = 0;
  c->keepalive_at = now + SDM_KEEPALIVE_USEC;
  c->silent_since = 0;
  frame_setup(&c->output, c->token);
}

/* Makes progress with the connection. Returns whether anything was done. */
static bool reconnect(sdm *c, uint64_t now) {
  int result;
  if (c->state == WAITING) {
    if (now < c->retry_at) return false;
    c->address_index = 0;
    result = begin_connect(c);
  } else {
    result = check_connect(c);
    if (result == 1 && now < c->connect_until) return false;
    if (result == 1) {
      close_socket(c);
      result = -ETIMEDOUT;
    }
  }
  while (result < 0 && ++c->address_index < c->address_count) result = begin_connect(c);
  if (result < 0) {
    lose(c, strerror(-result));
  } else if (result == 1) {
    c->state = CONNECTING;
    c->connect_until = now + CONNECT_USEC;
  } else {
    did_connect(c, now);
  }
  return true;
}

/* Waits for a readable descriptor. 1; 0: the time is over; -EINTR, -EBADF. */
static int await(int descriptor, short events, uint64_t until) {
  uint64_t now = now_usec();
  uint64_t left = until == NEVER ? UINT64_C(86400000000) : until > now ? until - now : 0;
  struct timespec time = {.tv_sec = (time_t)(left / 1000000), .tv_nsec = (long)(left % 1000000) * 1000};
  struct pollfd one = {.fd = descriptor, .events = events};
  int result = ppoll(&one, 1, left > UINT64_C(86400000000) || until == NEVER ? NULL : &time, NULL);
  if (result > 0 && (one.revents & POLLNVAL)) return -EBADF; /* the program has closed it */
  return result < 0 ? -errno : result;
}

/* The first connection, in which the program waits. */
static int connect_first(sdm *c) {
  uint64_t until = deadline(CONNECT_USEC);
  for (;;) {
    int result = begin_connect(c);
    while (result == 1) {
      result = await(c->socket, POLLOUT, until);
      if (result == 0) result = -ETIMEDOUT;
      if (result < 0) return result;
      result = check_connect(c);
    }
    if (result == 0) return 0;
    if (result == -EAGAIN) { /* a Unix socket whose queue is full */
      if (now_usec() >= until) return -ETIMEDOUT;
      if (poll(NULL, 0, 10) < 0) return -errno;
    } else if (++c->address_index >= c->address_count) {
      return result;
    }
  }
}

static int open_connection(sdm *c, const char *address) {
  int result = address_find(c, address);
  if (result < 0) return result;
  c->epoll = epoll_create1(EPOLL_CLOEXEC);
  c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (c->epoll < 0 || c->timer < 0) return -errno;
  struct epoll_event event = {.events = EPOLLIN, .data.fd = c->timer};
  if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timer, &event) < 0) return -errno;
  result = connect_first(c);
  if (result < 0) return result;
  if (getrandom(&c->random, sizeof c->random, GRND_NONBLOCK) < 0) c->random = now_usec() ^ (uint64_t)c->process;
  uint64_t now = now_usec();
  did_connect(c, now);
  connection_flush(c);
  set_timer(c, next_deadline(c), now);
  return 0;
}

SDM_PUBLIC int sdm_connect(sdm **ret, const char *address) { return sdm_connect_with_token(ret, address, NULL); }

SDM_PUBLIC int sdm_connect_with_token(sdm **ret, const char *address, const char *token) {
  if (!ret || (token && !is_valid_name(token, TOKEN_LIMIT))) return -EINVAL;
  sdm *c = calloc(1, sizeof *c);
  if (!c) return -ENOMEM;
  c->references = 1;
  c->process = getpid();
  c->socket = c->epoll = c->timer = -1;
  c->timeout = c->timer_at = NEVER;
  c->state = CONNECTING;
  if (token) c->token = strdup(token);
  int result = token && !c->token ? -ENOMEM : open_connection(c, address);
  if (result < 0) {
    sdm_unref(c);
    return result;
  }
  *ret = c;
  return 0;
}

SDM_PUBLIC sdm *sdm_ref(sdm *c) {
  if (c) c->references++;
  return c;
}

SDM_PUBLIC sdm *sdm_unref(sdm *c) {
  if (!c || --c->references) return NULL;
  if (c->get) request_release(&c->get->r);
  /* A child leaves the parent's epoll descriptor as it is: it only closes its copies. */
  descriptors_close(c);
  if (c->socket >= 0) close(c->socket);
  if (c->timer >= 0) close(c->timer);
  if (c->epoll >= 0) close(c->epoll);
  buffer_clear(&c->input);
  buffer_clear(&c->output);
  while (c->spare) {
    struct segment *next = c->spare->next;
    free(c->spare);
    c->spare = next;
  }
  free(c->token);
  free(c);
  return NULL;
}

void request_release(struct request *r) {
  sdm *c = r->c;
  if (request_remove(r)) connection_flush(c);
  switch (r->kind) {
    case SUBSCRIPTION: subscription_free((sdm_subscription *)r); break;
    case PUBLISHER: publisher_free((sdm_publisher *)r); break;
    case GET: buffer_clear(&((struct get *)r)->data); break;
    case COMMAND: free(((sdm_command *)r)->data); break;
    case MAP: case DEMAND: return; /* see sdm_mapped_unref() */
  }
  bool is_owned = r->kind == GET;
  free(r);
  if (!is_owned) sdm_unref(c);
}

/* --- processing --- */

static void handle_input(sdm *c) {
  const char *violation = protocol_receive(c);
  if (violation) {
    bool is_memory = violation == no_memory;
    frame_error(&c->output, 0, 0x101, violation);
    connection_flush(c);
    end(c, is_memory ? -ENOMEM : -EPROTO, violation);
  } else if (c->is_closed) {
    if (c->close_code) end(c, c->close_code, c->reason);
    else lose(c, c->reason);
  } else if (!buffer_size(&c->input) && c->input.capacity > READ_BYTES * 4) {
    buffer_clear(&c->input);
  }
}

/* Reads once. Returns whether anything came. */
static bool receive(sdm *c) {
  size_t wanted = c->input.capacity ? READ_BYTES / 2 : READ_BYTES, size = buffer_size(&c->input);
  if (size >= 3) {
    size_t whole = 3 + (size_t)number_at(buffer_content(&c->input), 3);
    if (whole > size && whole - size > wanted) wanted = whole - size;
  }
  uint8_t *place = buffer_reserve(&c->input, wanted);
  if (!place) {
    end(c, -ENOMEM, "no memory is left for a frame");
    return true;
  }
  ssize_t count = descriptors_receive(c, place, c->input.capacity - c->input.end);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {
    lose(c, count < 0 ? strerror(errno) : "the daemon has closed the connection");
    return true;
  }
  c->silent_since = 0;
  c->input.end += (size_t)count;
  c->received += (uint64_t)count;
  handle_input(c);
  return true;
}

static void keep_alive(sdm *c, uint64_t now) {
  if (c->is_paused) c->silent_since = 0;
  if (c->silent_since && now >= c->silent_since + SDM_LIFETIME_USEC - SDM_KEEPALIVE_USEC) {
    lose(c, "the daemon is silent");
    return;
  }
  if (now < c->keepalive_at) return;
  c->keepalive_at = now + SDM_KEEPALIVE_USEC;
  if (!buffer_size(&c->output)) frame_keepalive(&c->output, true, NULL, 0);
  if (!c->silent_since) c->silent_since = now;
}

static int process(sdm *c) {
  if (c->state == OVER) return 0;
  uint64_t now = now_usec();
  bool did = false;
  if (c->state == WAITING || c->state == CONNECTING) did = reconnect(c, now);
  if (c->state == CONNECTED) {
    protocol_send(c);
    uint64_t limit = c->is_paused ? UNTAKEN_LIMIT / 2 : UNTAKEN_LIMIT;
    c->is_paused = c->untaken_bytes > limit && !c->is_blocking;
    if (!c->is_paused && receive(c)) did = true;
  }
  if (c->state == CONNECTED) keep_alive(c, now);
  if (c->state == CONNECTED) {
    do {
      protocol_send(c);
      if (connection_flush(c)) did = true;
    } while (c->has_values && !buffer_size(&c->output) && !c->write_failed);
    if (c->output.failed) end(c, -ENOMEM, "no memory is left for a frame");
    else if (buffer_size(&c->output) > OUTPUT_LIMIT) lose(c, "the daemon does not read");
  }
  update_interest(c);
  set_timer(c, least(next_deadline(c), next_nudge(c, now)), now);
  return did;
}

int connection_work(sdm *c) {
  c->is_blocking = true;
  int result = process(c);
  c->is_blocking = false;
  return result;
}

void connection_tick(sdm *c, bool blocks) {
  c->is_blocking = blocks;
  process(c);
  c->is_blocking = false;
  connection_waited(c);
}

SDM_PUBLIC int sdm_process(sdm *c) {
  if (!c) return -EINVAL;
  int did = process(c);
  c->has_news = false; /* the program takes it now */
  if (c->state != OVER) return did;
  c->is_reported = true;
  set_timer(c, NEVER, 0);
  return fail_over(c, c->outcome, "%s");
}

int connection_poll(sdm *c, uint64_t until) { return await(c->epoll, POLLIN, until); }

int connection_wait(sdm *c, uint64_t until) {
  int result = connection_poll(c, until);
  /* Also if something has arrived: a daemon that does not stop sending would delay the end of the time without limit. */
  if (result > 0 && until <= now_usec()) result = 0;
  if (result == 0) return fail(c, -ETIMEDOUT, "the time is over");
  return result < 0 ? fail(c, result, "%s", strerror(-result)) : 1;
}

void connection_waited(sdm *c) {
  uint64_t now = now_usec();
  if (c->has_news) set_timer(c, now, now);
}

/* Whether the descriptor is readable for more than a nudge; if it is one, switches it off. */
static bool has_more_than_nudge(sdm *c) {
  struct epoll_event events[2];
  int count = epoll_wait(c->epoll, events, 2, 0);
  for (int i = 0; i < count; i++)
    if (events[i].data.fd == c->socket) return true;
  uint64_t now = now_usec(), next = next_deadline(c);
  if (next <= now) return true;
  set_timer(c, next, now);
  return false;
}

SDM_PUBLIC int sdm_wait(sdm *c, uint64_t usec) {
  if (!c) return -EINVAL;
  uint64_t until = deadline(usec), timer_at = c->timer_at;
  int result;
  do {
    if (c->state == OVER || (c->is_due && c->state == CONNECTED)) return 1;
    result = await(c->epoll, POLLIN, until);
    if (result > 0 && has_more_than_nudge(c)) return 1;
  } while (result > 0);
  set_timer(c, timer_at, now_usec()); /* a program that polls next needs the nudge */
  return result < 0 ? fail(c, result, "%s", strerror(-result)) : 0;
}

SDM_PUBLIC int sdm_get_fd(sdm *c) { return c ? c->epoll : -EINVAL; }

SDM_PUBLIC int sdm_get_events(sdm *c) { return c ? POLLIN : -EINVAL; }

SDM_PUBLIC int sdm_set_timeout(sdm *c, uint64_t usec) {
  if (!c) return -EINVAL;
  c->timeout = usec;
  return 0;
}

SDM_PUBLIC int sdm_is_connected(sdm *c) {
  if (!c) return -EINVAL;
  return c->state == CONNECTED ? 1 : c->state == OVER ? fail_over(c, c->outcome, "%s") : 0;
}
