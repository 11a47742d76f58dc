/* streamd-map.h: the shared memory of a mapped stream, layout version 1, for readers without libstreamd. Everything is in host byte order.
 *
 * OBTAINING IT. On the Unix socket, REQUEST_RESPONSE for the stream with the data {"map":true}, and `from` and `on_lag` as for a subscription. The reply's
 * data, without metadata, is JSON: {"version":1, "generation":G, "size":S, "position":P, "missed":N}. P is where `from` begins; N are the events that were lost
 * between the id to resume from and P, null if unknown. SCM_RIGHTS with the reply's first byte: descriptor 0 is the region, of exactly S bytes;
 * descriptor 1, if there is one, is the waiting page. Refusals: REJECTED `no stream named "x"`, `uid 1000 may not read "x"`; INVALID `"x" is not mapped`,
 * `"x" cannot be mapped over TCP`, and what names `where`, `marker` or "state".
 * DEMAND. REQUEST_STREAM with {"map":true,"position":P}, P from the reply (a `from` could mean another place a moment later). No PAYLOAD(next) comes.
 * Its credit is demand on the upstream for the events from P on: a reader that has read up to position p and wants n more has granted p + n - P in
 * all. The daemon takes P + all grants - the first grant for its position in `lag`. COMPLETE and ERROR are those of a subscription. The
 * region may be read without this stream; then its reader asks the upstream for nothing.
 *
 * THE REGION is a memfd of mode 0600, passed through a descriptor that was opened read-only, sealed with SHRINK, GROW and SEAL. Map it
 * PROT_READ, MAP_SHARED. Its size never changes: no access within S bytes can fault. It has only the fields below, the events that readers may
 * see, and zeros; not the stream's name, for which only the connection vouches.
 *
 * POSITIONS number the events of a stream without a gap, over generations and restarts while `epoch` is the same. The events held are those from
 * `first` up to, not including, `end`. Event p: the offset of its record in the ring is index[p & (slots - 1)]; a record lies in one piece.
 *
 * THE WRITER (the daemon's loop of the stream; one at a time), for a batch of events:
 *   1. first: store relaxed the oldest position that remains once the batch is in; atomic_thread_fence(release). Then bytes may be overwritten.
 *   2. records, and their index slots (relaxed 64-bit stores): ring space and slots of positions below `first` only.
 *   3. end: store release. A batch may be published in parts; an event is never visible in part.
 *   4. wake: increment, seq_cst. Then, with a waiting page of a user: if exchange(waiting, 0, seq_cst) is not 0, increment wake again, for a reader
 *      that is about to sleep, and FUTEX_WAKE of all on wake. Without waiting pages: FUTEX_WAKE for each batch.
 * THE READER at position p (its own memory; it writes nothing to the region):
 *   1. e = end, load acquire. p == e: nothing new; look at `state` (acquire), then at `end` once more, before believing that it is the last.
 *   2. f = first, load acquire. p < f: overtaken; f - p events are the gap; p = f (skip) or e - 1 (latest; the gap is e - 1 - p) or the end (fail).
 *   3. o = index[p & (slots - 1)], load relaxed. Check o % 8 == 0 and o + 24 <= ring_bytes, read the record's size, check that o + 24 + size <=
 *      ring_bytes; copy header and data into private memory. Nothing that was read may be used yet, except for these checks.
 *   4. atomic_thread_fence(acquire); f = first, load relaxed. f > p: overwritten meanwhile, discard the copy and go to 2. Else it is valid, and p + 1
 *      is next. Checks of 3 that fail with f <= p: the region is damaged: an error, never a loop. Many events may share one copy and one step 4, with
 *      the lowest p among them. p > e is damage as well, and so is e - f > slots, if first is still f after e was read again.
 * WAITING without a lost wake-up: store 1 to waiting (seq_cst), w = wake (seq_cst). If waiting (seq_cst) is 0 by now, start again: the wake-up may
 *      have come before the sleep. Look at `end` and `state` again; if nothing is new,
 *      FUTEX_WAIT(&wake, w) (not FUTEX_PRIVATE_FLAG; read-only memory suffices), at most for a second at a time: a process of the same user can
 *      clear the waiting page, and a killed daemon wakes nobody: the connection shows that. Start again after every return.
 * THE WAITING PAGE is a memfd of one page, writable, sealed with SHRINK, GROW and SEAL: one for each user and stream, because whoever can write it
 *      can delay the wake-up of its readers, and those of the same user could stop them anyway. u32 waiting at offset 0. Hostile content costs the
 *      daemon one FUTEX_WAKE for each batch. The page of the newest reply counts, also if its region is the one that is read: the daemon forgets a
 *      page with the last connection of the user to which it was passed.
 * GENERATIONS. Reload of `map`, buffer or access, resize, restart: the daemon makes a new region with a higher generation, stores REPLACED to the old
 *      state (release) after the old region's last event, increments and wakes as above, and writes to the old one no more. The reader reads the old
 *      one to its end, then asks for the map again with its last id as `from`: it gets the next generation, or why not. After a kill the next process
 *      marks the region if it was stored by the service manager; else the lost connection shows it. The generation rises over restarts.
 *      If epoch is as before, the gap is P - p exactly; else `missed`. Memory that is mapped remains readable to those who hold it. */
#ifndef STREAMD_MAP_H
#define STREAMD_MAP_H
#include <stdint.h>
#ifdef __cplusplus
#include <atomic>
#define SDM_ATOMIC(t) std::atomic<t>
extern "C" {
#else
#include <stdatomic.h>
#define SDM_ATOMIC(t) _Atomic(t)
#endif
#define SDM_MAP_MAGIC UINT64_C(0x50414D444D525453) /* "STRMDMAP" in a little endian dump */
#define SDM_MAP_VERSION 1u

enum sdm_map_state {
  SDM_MAP_LIVE = 0,
  SDM_MAP_REPLACED = 1, /* after its last event, ask for the next generation */
  SDM_MAP_ENDED = 2     /* the stream has completed or failed: the demand stream has which; no generation follows but by reload */
};

struct sdm_map_header {
  uint64_t magic;          /*   0 */
  uint32_t version;        /*   8 a reader rejects others than its own */
  uint32_t header_bytes;   /*  12 4096 */
  uint64_t generation;     /*  16 from 1 */
  uint64_t epoch;          /*  24 of the positions: another one after events may have been lost unseen, as when the log starts anew */
  uint64_t region_bytes;   /*  32 the descriptor's size, a multiple of the page size */
  uint64_t slots;          /*  40 a power of two, at least buffer.events */
  uint64_t index_offset;   /*  48 multiples of 64; index and ring lie behind the header, within the region, and do not overlap */
  uint64_t ring_offset;    /*  56 */
  uint64_t ring_bytes;     /*  64 at least buffer.bytes */
  uint8_t constant[56];    /*  72 zero; all fields above never change */
  SDM_ATOMIC(uint64_t) first; /* 128 */
  uint8_t apart0[56];
  SDM_ATOMIC(uint64_t) end;   /* 192 */
  uint8_t apart1[56];
  SDM_ATOMIC(uint32_t) wake;  /* 256 the futex: another value after each publication and each change of state */
  SDM_ATOMIC(uint32_t) state; /* 260 enum sdm_map_state */
  uint8_t rest[3832];
};

struct sdm_map_record {    /* at a multiple of 8 in the ring */
  uint32_t size;           /* bytes of data */
  uint32_t reserved;       /* 0 */
  uint64_t id;
  uint64_t time;           /* microseconds since the Unix epoch */
  /* data; then up to the next multiple of 8, undefined */
};
#ifdef __cplusplus
}
#else
_Static_assert(sizeof(struct sdm_map_header) == 4096, "layout");
_Static_assert(sizeof(struct sdm_map_record) == 24, "layout");
#endif
#endif
