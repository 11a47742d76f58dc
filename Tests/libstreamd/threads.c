/* threads [COUNT]: a reader and a writer of COUNT events as threads over one mapping, for the thread sanitizer: each event that is read is
 * whole, and none is unaccounted for. */
#include "content.h"
#include "internal.h"

#include <pthread.h>

static unsigned long long wanted;

static void *write_in_thread(void *argument) {
  struct writer *w = argument;
  while (w->id < wanted) {
    for (int i = 0; i < 5; i++) write_next(w);
    writer_publish(w);
  }
  writer_set_state(w, SDM_MAP_ENDED);
  return NULL;
}

int main(int count, char **words) {
  wanted = count > 1 ? strtoull(words[1], NULL, 10) : 100000;
  struct writer w = writer_open((struct shape){.slots = 64, .ring_bytes = 8000, .generation = 1, .has_page = true});
  struct region r = {.bytes = (const uint8_t *)w.header, .size = w.size, .waiting = w.waiting, .generation = 1, .slots = 64, .ring_bytes = 8000,
                     .index = w.index, .ring = w.ring, .event_limit = EVENT_LIMIT};
  static struct copy copy;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, write_in_thread, &w) == 0);
  uint64_t position = 0, read = 0, lost = 0;
  for (bool has_ended = false;;) {
    uint64_t first = 0, end = 0, before = position;
    enum found found = region_copy(&r, position, 64, &copy, &first, &end);
    CHECK(found != FOUND_DAMAGE && found != FOUND_NO_MEMORY);
    if (found == FOUND_OVERTAKEN) position = first;
    if (found == FOUND_EVENTS) position += copy.next;
    lost += position - before;
    for (; found == FOUND_EVENTS && copy.next < copy.count; position++, read++) {
      struct copied taken = copied_event(&copy, 0);
      sdm_event e = {.id = taken.id, .time = taken.time, .data = taken.data, .size = taken.size};
      copy.next++;
      EQUAL(e.id, position + 1);
      expect_whole(&e);
    }
    if (found != FOUND_NOTHING) continue;
    if (has_ended) break;
    has_ended = region_state(&r) == SDM_MAP_ENDED;
    if (!has_ended) CHECK(region_wait(&r, position, 100000) == 0);
  }
  pthread_join(thread, NULL);
  EQUAL(read + lost, w.end);
  printf("threads: %llu events read whole, %llu lost\n", (unsigned long long)read, (unsigned long long)lost);
  free(copy.bytes);
  writer_close(&w);
  return 0;
}
