import CLinux
import Glibc
import Synchronization

/// One thread with one epoll set. Each turn handles descriptors, posted work and timers, in that order.
///
/// Each of the three has a time slice per turn. The excess waits for the next turn and keeps its order, so that a flood
/// of one kind delays neither the others nor the end of the turn.
///
/// Everything except `execute`, `start`, `stop` and `isCurrent` is confined to the loop's thread, or to the thread that
/// prepares the loop before `start`; debug builds check this. Only `epoll_wait` blocks.
@safe public final class EventLoop: @unchecked Sendable {  // loop state is confined to one thread, as said above
  /// The interest in a descriptor, and its reported readiness. A closed or failed peer is reported as both, so that the
  /// next read or write returns the error.
  public struct Readiness: OptionSet, Sendable {
    /// The bits, as below.
    public let rawValue: UInt8
    /// Makes a set of the bits below.
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Data, or the end of the input, can be read.
    public static let readable = Readiness(rawValue: 1)
    /// Data can be written.
    public static let writable = Readiness(rawValue: 2)
  }

  /// Receives a descriptor's readiness. Retained by the loop until it is unregistered.
  public protocol Handler: AnyObject {
    /// Level-triggered: unread data is reported again in the next turn.
    func descriptorIsReady(_ readiness: Readiness)
  }

  /// A watched descriptor. The generation prevents an event that was already fetched from reaching the slot's next
  /// descriptor.
  public struct Registration: Sendable {
    let slot: UInt32
    let generation: UInt32
  }

  private struct Slot {
    var handler: (any Handler)?
    var generation: UInt32 = 0
    var descriptor: CInt = -1
  }

  /// The thread's name; the system shows at most 15 bytes.
  public let name: String
  /// Called at the end of each turn, after all input was handled: the place for gathered writes. Returns the
  /// nanoseconds until the next turn at the latest, 0 for at once; nil: at the next input. Released when the loop has
  /// stopped.
  public var endOfTurn: (() -> UInt64?)?
  /// Nanoseconds of the monotonic clock, read once per turn.
  public private(set) var now: UInt64
  /// How often the loop has asked for ready descriptors. Those of one answer may be delivered in several turns.
  package private(set) var waitCount: UInt64 = 0

  private let epoll: OwnedDescriptor
  /// Ready descriptors, of which the first `deliveredCount` were delivered.
  private let readyEvents = UnsafeMutableBufferPointer<epoll_event>.allocate(capacity: eventsPerTurn)
  private var readyCount = 0
  /// Whether the kernel has epoll_pwait2, as Linux 5.11 and later; emulators may lack it.
  var hasNanoseconds = true
  private var deliveredCount = 0
  /// Work taken from the mailbox, of which the first `doneCount` items are done.
  private var postedWork: [@Sendable () -> Void] = []
  private var doneCount = 0
  private let wakeUp: OwnedDescriptor
  private let mailbox = Mailbox<@Sendable () -> Void>()
  private let stopRequested = Atomic(false)
  private let threadID = Atomic<UInt>(0)
  private var slots: [Slot] = []
  private var freeSlots: [UInt32] = []
  private var timers = TimerQueue()
  private let busy = Atomic<UInt64>(0)
  /// When the current turn began, in nanoseconds of the monotonic clock; 0 between two turns.
  private let turnBegan = Atomic<UInt64>(0)
  /// The time up to which `busy` counts.
  private var countedUntil: UInt64

  /// The slot number of the loop's own wake-up descriptor.
  private static let wakeUpToken = UInt64.max
  private static let eventsPerTurn = 256
  /// Nanoseconds per turn for descriptors, for posted work and for timers, each: after them, no further item of that
  /// kind begins. A tenth of the total time that a client may wait for other clients' work.
  static let slice: UInt64 = 5_000_000

  /// - Throws: `epoll_create1` or `eventfd`, when the process has no free descriptor.
  public init(name: String) throws(SystemError) {
    let epoll = epoll_create1(CInt(EPOLL_CLOEXEC))
    guard epoll >= 0 else { throw SystemError("epoll_create1") }
    self.epoll = OwnedDescriptor(epoll)
    let wakeUp = eventfd(0, CInt(EFD_CLOEXEC | EFD_NONBLOCK))
    guard wakeUp >= 0 else { throw SystemError("eventfd") }
    self.wakeUp = OwnedDescriptor(wakeUp)
    self.name = name
    now = Self.monotonicNow()
    countedUntil = now
    var event = unsafe epoll_event()
    unsafe event.events = EPOLLIN.rawValue
    unsafe event.data.u64 = Self.wakeUpToken
    guard unsafe epoll_ctl(epoll, EPOLL_CTL_ADD, wakeUp, &event) == 0 else { throw SystemError("epoll_ctl") }
  }

  deinit { unsafe readyEvents.deallocate() }

  // MARK: From any thread

  /// Runs `work` on the loop's thread, after earlier work; calls from one thread keep their order. Several calls before
  /// the loop's next turn cause one wake-up. Dropped once the loop has ended.
  public func execute(_ work: @escaping @Sendable () -> Void) {
    if mailbox.post(work) { signalWakeUp() }
  }

  /// Whether the caller is on the loop's thread.
  public var isCurrent: Bool { threadID.load(ordering: .relaxed) == pthread_self() }

  /// Traps in a debug build if the caller is on another thread than the running loop's. For the entry points of types
  /// that are confined to a loop; does nothing in a release build.
  @inlinable public func assertOnLoop(file: StaticString = #fileID, line: UInt = #line) {
    assert(isConfined, "called on another thread than the event loop's", file: file, line: line)
  }

  /// Whether this is the loop's thread, or the loop does not run.
  @usableFromInline var isConfined: Bool {
    let id = threadID.load(ordering: .relaxed)
    return id == 0 || id == pthread_self()
  }

  /// Nanoseconds in which the loop was not waiting, without the current turn.
  public var busyNanoseconds: UInt64 { busy.load(ordering: .relaxed) }

  /// The duration of the current turn so far; zero between two turns.
  public var turnDuration: Duration {
    let began = turnBegan.load(ordering: .relaxed)
    let now = Self.monotonicNow()
    return began == 0 || began > now ? .zero : .nanoseconds(Int64(clamping: now - began))
  }

  /// Ends `run` after the current turn.
  public func stop() {
    stopRequested.store(true, ordering: .releasing)
    signalWakeUp()
  }

  /// Runs the loop on a new thread, which retains the loop until it stops.
  /// - Throws: `pthread_create`, when the process may have no more threads.
  public func start() throws(SystemError) {
    try BackgroundThread.start(name: name) { self.run() }
  }

  // MARK: On the loop

  /// Runs turns on the calling thread until `stop`.
  public func run() {
    threadID.store(pthread_self(), ordering: .relaxed)
    var timeout: UInt64?
    countedUntil = Self.monotonicNow()
    while !stopRequested.load(ordering: .acquiring) { timeout = turn(waitingAtMost: timeout) }
    // Work posted before the stop runs; later work is dropped, because it may retain the loop.
    postedWork += mailbox.close()
    while let work = nextPostedWork() { work() }
    endOfTurn = nil
    let former = timers  // may retain the loop, too
    timers = TimerQueue()
    _ = former
    threadID.store(0, ordering: .relaxed)  // another thread may get the same id
  }

  /// Watches `descriptor`. The caller still owns it, and must unregister it before closing it.
  /// - Throws: `epoll_ctl`, when the kernel's limit of watches is reached.
  public func register(
    _ descriptor: CInt, for readiness: Readiness, handler: any Handler
  ) throws(SystemError) -> Registration {
    assertOnLoop()
    let slot: UInt32
    if let free = freeSlots.popLast() {
      slot = free
    } else {
      slot = UInt32(slots.count)
      slots.append(Slot())
    }
    let registration = Registration(slot: slot, generation: slots[Int(slot)].generation)
    slots[Int(slot)].descriptor = descriptor
    guard control(EPOLL_CTL_ADD, registration, readiness) == 0 else {
      let error = SystemError("epoll_ctl")
      freeSlots.append(slot)
      throw error
    }
    slots[Int(slot)].handler = handler
    return registration
  }

  /// Changes the interest. A watch without interest still reports a closed peer.
  public func update(_ registration: Registration, for readiness: Readiness) {
    assertOnLoop()
    let result = control(EPOLL_CTL_MOD, registration, readiness)
    precondition(result == 0, "epoll_ctl on descriptor \(slots[Int(registration.slot)].descriptor): errno \(errno)")
  }

  /// Stops watching; no further event is delivered, not even one that this turn has fetched already.
  public func unregister(_ registration: Registration) {
    assertOnLoop()
    guard slots[Int(registration.slot)].generation == registration.generation else { return }
    _ = control(EPOLL_CTL_DEL, registration, [])
    slots[Int(registration.slot)].handler = nil
    slots[Int(registration.slot)].generation &+= 1
    freeSlots.append(registration.slot)
  }

  /// Runs `action` once, `delay` from now; never early, late by the turn's other work and by the system's timer slack.
  public func schedule(after delay: Duration, _ action: @escaping () -> Void) -> TimerID {
    assertOnLoop()
    return timers.schedule(at: Self.monotonicNow() &+ UInt64(max(0, delay.wholeNanoseconds)), action)
  }

  /// Cancels a timer; does nothing when its action has run or was cancelled.
  public func cancel(_ timer: TimerID) {
    assertOnLoop()
    timers.cancel(timer)
  }

  // MARK: A turn

  /// Runs one turn without waiting: for tests.
  package func runOneTurn() { _ = turn(waitingAtMost: 0) }

  /// - Parameter timeout: nanoseconds; nil: no timeout.
  private func turn(waitingAtMost timeout: UInt64?) -> UInt64? {
    if deliveredCount == readyCount {
      waitForDescriptors(atMost: timeout)
    } else {
      now = Self.monotonicNow()
      countBusy(until: now)
    }
    turnBegan.store(now, ordering: .relaxed)
    var deadline = now &+ Self.slice
    repeat {
      guard deliveredCount < readyCount else { break }
      deliveredCount += 1
      unsafe deliver(readyEvents[deliveredCount - 1])
    } while Self.monotonicNow() < deadline
    // The wake-up may be among the descriptors that wait for further turns; posted work does not wait for these.
    if deliveredCount < readyCount { takePostedWork() }
    deadline = Self.monotonicNow() &+ Self.slice
    repeat {
      guard let work = nextPostedWork() else { break }
      work()
    } while Self.monotonicNow() < deadline
    deadline = Self.monotonicNow() &+ Self.slice
    repeat {
      guard let action = timers.popDue(at: now) else { break }
      action()
    } while Self.monotonicNow() < deadline
    let timeout = endOfTurn?()
    return deliveredCount < readyCount || doneCount < postedWork.count ? 0 : timeout
  }

  private func waitForDescriptors(atMost timeout: UInt64?) {
    let isWaiting = timeout != 0
    var timeout = timeout
    if isWaiting {
      let current = Self.monotonicNow()
      countBusy(until: current)
      if let deadline = timers.nextDeadline() {
        timeout = min(timeout ?? .max, deadline > current ? deadline - current : 0)
      }
    }
    turnBegan.store(0, ordering: .relaxed)
    let count = unsafe wait(for: readyEvents, atMost: timeout)
    precondition(count >= 0 || errno == EINTR, "epoll_pwait2: errno \(errno)")
    (readyCount, deliveredCount) = (max(0, Int(count)), 0)
    waitCount &+= 1
    now = Self.monotonicNow()
    if isWaiting { countedUntil = now } else { countBusy(until: now) }
  }

  private func takePostedWork() {
    if postedWork.isEmpty { postedWork = mailbox.takeAll() } else { postedWork += mailbox.takeAll() }
  }

  /// Removes the oldest posted item that has not run.
  private func nextPostedWork() -> (@Sendable () -> Void)? {
    guard doneCount < postedWork.count else { return nil }
    defer {
      doneCount += 1
      if doneCount == postedWork.count {
        postedWork = []
        doneCount = 0
      } else if doneCount >= 1024, doneCount * 2 > postedWork.count {
        postedWork.removeFirst(doneCount)
        doneCount = 0
      }
    }
    return postedWork[doneCount]
  }

  private func wait(for events: UnsafeMutableBufferPointer<epoll_event>, atMost nanoseconds: UInt64?) -> CInt {
    guard let start = events.baseAddress else { return 0 }
    guard let nanoseconds else { return unsafe epoll_wait(epoll.raw, start, CInt(events.count), -1) }
    guard nanoseconds > 0 else { return unsafe epoll_wait(epoll.raw, start, CInt(events.count), 0) }
    if hasNanoseconds {
      var timeout = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
      let count = unsafe epoll_pwait2(epoll.raw, start, CInt(events.count), &timeout, nil)
      // A filter of system calls that does not know it answers EPERM.
      guard count < 0, errno == ENOSYS || errno == EPERM else { return count }
      hasNanoseconds = false
    }
    let milliseconds = CInt(clamping: nanoseconds / 1_000_000 + 1)
    return unsafe epoll_wait(epoll.raw, start, CInt(events.count), milliseconds)
  }

  /// Only the loop writes the counter, so no locked instruction is needed.
  private func countBusy(until moment: UInt64) {
    busy.store(busy.load(ordering: .relaxed) &+ (moment &- countedUntil), ordering: .relaxed)
    countedUntil = moment
  }

  private func deliver(_ event: epoll_event) {
    if unsafe event.data.u64 == Self.wakeUpToken {
      var count: UInt64 = 0
      _ = unsafe read(wakeUp.raw, &count, 8)
      return takePostedWork()
    }
    let slot = unsafe slots[Int(truncatingIfNeeded: event.data.u64 & 0xFFFF_FFFF)]
    guard let handler = slot.handler, unsafe slot.generation == UInt32(event.data.u64 >> 32) else { return }
    var readiness: Readiness = []
    if unsafe event.events & (EPOLLIN.rawValue | EPOLLHUP.rawValue | EPOLLERR.rawValue) != 0 {
      readiness.insert(.readable)
    }
    if unsafe event.events & (EPOLLOUT.rawValue | EPOLLHUP.rawValue | EPOLLERR.rawValue) != 0 {
      readiness.insert(.writable)
    }
    handler.descriptorIsReady(readiness)
  }

  private func control(_ operation: CInt, _ registration: Registration, _ readiness: Readiness) -> CInt {
    var event = unsafe epoll_event()
    if readiness.contains(.readable) { unsafe event.events |= EPOLLIN.rawValue }
    if readiness.contains(.writable) { unsafe event.events |= EPOLLOUT.rawValue }
    unsafe event.data.u64 = UInt64(registration.generation) << 32 | UInt64(registration.slot)
    return unsafe epoll_ctl(epoll.raw, operation, slots[Int(registration.slot)].descriptor, &event)
  }

  private func signalWakeUp() {
    var one: UInt64 = 1
    _ = unsafe write(wakeUp.raw, &one, 8)  // a full counter means that a wake-up is pending
  }

  /// Microseconds since the Unix epoch.
  public static func wallClock() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_REALTIME, &time)
    return UInt64(max(0, time.tv_sec)) * 1_000_000 + UInt64(time.tv_nsec) / 1000
  }

  /// Nanoseconds of CLOCK_MONOTONIC: intervals are unaffected by the wall clock being set.
  public static func monotonicNow() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
  }

  /// As `monotonicNow()`, as a duration.
  package static var monotonicTime: Duration { .nanoseconds(Int64(clamping: monotonicNow())) }
}
