// What the program under test sees of a machine: clocks, threads, queues, sockets, files, the service manager. All of it
// runs in one thread, and every choice comes from one random number generator.
//
// The functions of shim.c take the place of those of the C library, of libdispatch and of libsystemd, since a program's
// own symbols come first. Nothing under test is built differently for it.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// MARK: A run

/// From now on this process is the simulated machine. All memory comes from another heap, at the same addresses each time.
void sim_begin(uint64_t seed, const char *folder);
/// The random numbers from here on depend on this number alone.
void sim_seed(uint64_t number);
/// The next random number.
uint64_t sim_random(void);
/// A hash of all that happened so far that another run of the same seed has to repeat.
uint64_t sim_trace(void);
void sim_trace_add(uint64_t value);

// MARK: Time

/// Nanoseconds of the monotonic clock.
uint64_t sim_now(void);
/// Lets time pass.
void sim_pass(uint64_t nanoseconds);
/// Both clocks are at that moment, by the monotonic one: what a process does after its end takes no time.
void sim_set_now(uint64_t nanoseconds);
/// Microseconds since the epoch, by the wall clock.
uint64_t sim_wall(void);
/// Sets the wall clock forward, or back.
void sim_set_wall(int64_t nanoseconds);

// MARK: Threads and queues

/// Runs one thing that can run, until it waits. 0: there is none before time passes.
int sim_run_one(void);
/// When something can run that waits for time alone; UINT64_MAX: never.
uint64_t sim_next_deadline(void);
/// How many threads there are.
int sim_thread_count(void);
/// The name of one.
const char *sim_thread_name(void);

/// How likely it is that a thread that calls the kernel has to let others run first, out of 65,536 calls; and how often it
/// had to.
extern uint32_t sim_switch_rate;
extern uint64_t sim_switches;

// MARK: The process under test

/// Sockets, files and the service manager do nothing any more, though they say that they did: as if the process had been
/// killed. What it has mapped is its own from now on. Its threads can be ended in an orderly way after that.
void sim_kill(void);
/// As `sim_kill`, in the middle of what comes: with the call that is the `count`th to have an effect from now on. 0: not.
void sim_kill_later(uint32_t count);
int sim_is_dead(void);
/// Another process begins.
void sim_revive(void);
/// Descriptors below the simulation's own that are open.
int sim_open_descriptors(void);
/// Moves a descriptor to the simulation's own.
int sim_own(int descriptor);
/// Bytes that the heap has given out.
int64_t sim_heap_bytes(void);

// MARK: Faults

enum {
  SIM_SEND_SHORT, SIM_SEND_EINTR, SIM_SEND_ENOBUFS, SIM_SEND_RESET, SIM_RECV_SHORT, SIM_RECV_EINTR, SIM_RECV_RESET,
  SIM_EPOLL_EINTR, SIM_EPOLL_ADD, SIM_ACCEPT, SIM_MEMFD, SIM_DISK_FULL, SIM_SYNC, SIM_WRITE, SIM_RENAME, SIM_SOCKETPAIR,
  SIM_PARCEL, SIM_STORE, SIM_LATE, SIM_FAULTS
};
/// How likely each is, out of 65,536 calls.
extern uint32_t sim_fault_rate[SIM_FAULTS];
/// How often each has happened.
extern uint64_t sim_fault_count[SIM_FAULTS];
/// While it is 0, none happens.
extern int sim_faults_on;

// MARK: The machine

/// What the disk holds after a loss of power: of each file the pages that were brought there, and any of the others.
void sim_lose_power(void);
/// The service manager's descriptor store.
extern int sim_store_limit;
int sim_store_count(void);
int sim_store_descriptor(int index);
const char *sim_store_name(int index);
/// The store is gone, with what is in it.
void sim_store_clear(void);
/// Lines that the journal got.
extern uint64_t sim_journal_lines;
/// Called with each, NUL-terminated, unless it is NULL.
extern void (*sim_journal)(const char *line);
/// The journal was told that ids may decrease after a kill.
extern int sim_ids_may_decrease;

// MARK: For the simulation itself: the kernel's own functions

ssize_t sim_real_send(int descriptor, const void *bytes, size_t count);
ssize_t sim_real_recv(int descriptor, void *bytes, size_t count);
ssize_t sim_real_write(int descriptor, const void *bytes, size_t count);
/// A client's socket, connected to the listening one of that name. -1 and errno.
///
/// `peer` is part of its own name, and what the server sees of it: `u1000`, a user; `a192.0.2.1` or `a2001:db8::1`, an
/// address, as of a peer over TCP, which has no credentials; empty: neither.
int sim_connect(const char *name, const char *peer, int send_buffer);
/// A listening socket.
int sim_listen(const char *name);
/// A listening socket at that path, which does not block, and the next connection to it; -1: none.
int sim_listen_at(const char *path);
int sim_accept(int listener);
/// Bytes that wait to be read.
int sim_waiting(int descriptor);
/// Makes a copy of this process, and waits for its end. Not 0: this is the copy, which ends with `_exit`.
int sim_copy(void);
/// Ends this process with a message on standard error; never returns.
void sim_abort(const char *message) __attribute__((noreturn));

// MARK: Runs

/// Ends the runners and waits for them, so that whoever waits for this process learns of their processor time.
void sim_finish(void);

/// What a run is to do.
struct sim_request {
  uint64_t seed;
  int32_t is_verbose;
  /// How many steps `sim_step` gives.
  int32_t step_count;
  char folder[200];
};
extern struct sim_request sim_request;
int32_t sim_step(int index);
/// To be called first thing in `main`: makes processes that wait for requests, and do each in a process of its own that
/// is in the same state each time.
///
/// Each writes its lines to the file beside its folder, `.out`.
void sim_prepare(void (*run)(void));
int sim_runner_count(void);
/// A descriptor that is readable once the request has been done.
int sim_runner(int index);
void sim_ask(int index, const struct sim_request *request, const int32_t *steps);
/// The status of the process, as by waitpid(2), and the processor time that it has used.
int sim_answer(int index, uint64_t *microseconds);
