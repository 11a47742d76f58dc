// What the calling thread has allocated, in a program that is linked with this: the allocator's functions here stand
// before the C library's, to which they hand over.
#pragma once

// How often, since the thread began.
long allocation_count(void);

// The same, of all threads since the program began, without calloc(3), by which libdispatch gets the items of its queues.
long allocation_count_of_all_threads(void);

// How many bytes the thread has taken and not given back, with what the allocator spends on each piece.
long live_bytes(void);
