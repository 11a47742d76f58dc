import CLinux
import Glibc
import StreamRuntime

/// Many subscribers on one thread, and on one epoll set with the publisher: the same reader for every contender.
///
/// Events of one size are counted by their bytes, others by the empty lines after them. The pool checks the number of
/// the last complete event of each read, or of every event if requested.
@safe final class SubscriberPool {
  private let name: String
  let count: Int
  let shape: EventShape
  private let epoll: CInt
  private let sockets: [CInt]
  /// For each subscriber, the number of complete events.
  private let received: UnsafeMutableBufferPointer<Int>
  /// For each subscriber, the beginning of an incomplete event, and its size.
  private let beginnings: UnsafeMutableRawBufferPointer
  private let beginningByteCounts: UnsafeMutableBufferPointer<Int>
  private let buffer: UnsafeMutableRawBufferPointer
  private let events: UnsafeMutableBufferPointer<epoll_event>
  /// The number of each subscriber's first event.
  private let firstNumber: UInt64
  private var firstID: UInt64?
  private let verifiesAll: Bool
  /// Whether events are numbered.
  private let isNumbered: Bool

  /// Called with the send times of one read's events, and the time of the read.
  var onTimes: ((_ sent: UnsafeRawBufferPointer, _ stride: Int, _ now: UInt64) -> Void)?
  /// Called when the publisher's socket is ready.
  var onPublisher: (() throws -> Void)?

  private static let readBytes = 128 << 10
  private static let publisherToken = UInt64.max

  /// - Parameters:
  ///   - name: the server's name, for error messages.
  ///   - sockets: already subscribed; the pool closes them.
  ///   - firstNumber: the number of their first event; nil if events are not numbered.
  init(_ name: String, _ sockets: [CInt], shape: EventShape, firstNumber: UInt64?, verifiesAll: Bool) throws {
    self.name = name
    self.sockets = sockets
    self.shape = shape
    self.firstNumber = firstNumber ?? 0
    self.verifiesAll = verifiesAll
    isNumbered = firstNumber != nil
    count = sockets.count
    unsafe received = .allocate(capacity: count)
    unsafe received.initialize(repeating: 0)
    unsafe beginnings = .allocate(byteCount: count * shape.byteCount, alignment: 8)
    unsafe beginningByteCounts = .allocate(capacity: count)
    unsafe beginningByteCounts.initialize(repeating: 0)
    unsafe buffer = .allocate(byteCount: shape.byteCount + Self.readBytes, alignment: 64)
    unsafe events = .allocate(capacity: 256)
    epoll = epoll_create1(CInt(EPOLL_CLOEXEC))
    guard epoll >= 0 else { throw SystemError("epoll_create1") }
    for (index, socket) in sockets.enumerated() {
      _ = fcntl(socket, F_SETFL, O_NONBLOCK)
      try watch(socket, EPOLLIN.rawValue, token: UInt64(index))
    }
  }

  deinit {
    sockets.forEach { close($0) }
    close(epoll)
    unsafe received.deallocate()
    unsafe beginnings.deallocate()
    unsafe beginningByteCounts.deallocate()
    unsafe buffer.deallocate()
    unsafe events.deallocate()
  }

  /// Watches the publisher's socket: `onPublisher` is called for credit and for room to write.
  func watch(publisher: CInt) throws {
    try watch(publisher, EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLET.rawValue, token: Self.publisherToken)
  }

  private func watch(_ socket: CInt, _ wanted: UInt32, token: UInt64) throws {
    var event = unsafe epoll_event()
    unsafe event.events = wanted
    unsafe event.data.u64 = token
    guard unsafe epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0 else { throw SystemError("epoll_ctl") }
  }

  /// Sends one byte to every server connection: it starts or stops the bare server.
  func say(_ byte: UInt8) {
    var byte = byte
    for socket in sockets { unsafe send(socket, &byte, 1, CInt(MSG_NOSIGNAL)) }
  }

  /// Complete events received by all subscribers together.
  var total: Int { unsafe received.reduce(0, +) }
  /// Complete events of the slowest subscriber.
  var least: Int { unsafe received.min() ?? 0 }
  /// Complete events of the fastest subscriber.
  var most: Int { unsafe received.max() ?? 0 }

  /// Reads once from each subscriber with input.
  /// - Parameter timeout: maximum milliseconds to wait for the first input.
  /// - Returns: whether there was any input.
  @discardableResult func read(timeout: CInt) throws -> Bool {
    guard let start = unsafe events.baseAddress else { return false }
    let ready = unsafe epoll_wait(epoll, start, CInt(events.count), timeout)
    for index in 0..<max(0, Int(ready)) {
      let token = unsafe events[index].data.u64
      if token == Self.publisherToken { try onPublisher?() } else { try read(Int(token)) }
    }
    return ready > 0
  }

  private func read(_ index: Int) throws {
    let before = unsafe received[index]
    let carried = unsafe beginningByteCounts[index]
    guard let base = unsafe buffer.baseAddress,
      let kept = unsafe beginnings.baseAddress.map({ unsafe $0 + index * shape.byteCount })
    else { return }
    unsafe base.copyMemory(from: kept, byteCount: carried)
    let count = unsafe recv(sockets[index], base + carried, Self.readBytes, 0)
    guard count > 0 else {
      let error = SystemError("recv", "event \(before) of subscriber \(index) from \(name)")
      if count < 0, error.code == EAGAIN || error.code == EINTR { return }
      throw count < 0 ? error : BenchError("\(name) hung up on subscriber \(index) after \(before) events")
    }
    let bytes = unsafe UnsafeMutableRawBufferPointer(start: base, count: carried + count)
    let (whole, used) = unsafe shape.isDelimited ? gather(bytes) : wholeEvents(bytes)
    let rest = bytes.count - used
    guard rest <= shape.byteCount else { throw BenchError("\(name): an event of subscriber \(index) is too long") }
    unsafe received[index] = before + whole
    unsafe beginningByteCounts[index] = rest
    unsafe kept.copyMemory(from: base + used, byteCount: rest)
    guard isNumbered, whole > 0 else { return }
    let (stride, dataOffset) =
      shape.isDelimited ? (EventShape.dataByteCount, 0) : (shape.byteCount, shape.dataOffset)
    let number = firstNumber + UInt64(before)
    for event in (verifiesAll ? 0 : whole - 1)..<whole {
      try unsafe check(base + event * stride, dataOffset, number: number + UInt64(event), index)
    }
    unsafe onTimes?(
      UnsafeRawBufferPointer(start: base + dataOffset + 8, count: whole * stride - dataOffset - 8), stride,
      monotonicNanoseconds())
  }

  private func wholeEvents(_ bytes: UnsafeMutableRawBufferPointer) -> (count: Int, byteCount: Int) {
    let count = bytes.count / shape.byteCount
    return (count, count * shape.byteCount)
  }

  /// Moves the data of delimited events together, to the beginning.
  /// - Returns: the number of events, and of the bytes that they had.
  private func gather(_ bytes: UnsafeMutableRawBufferPointer) -> (count: Int, byteCount: Int) {
    guard let base = bytes.baseAddress else { return (0, 0) }
    var (count, used, next) = (0, 0, 0)
    while let found = unsafe memchr(base + next, 10, bytes.count - next) {
      next = unsafe found - base + 1
      guard next < bytes.count else { break }
      guard unsafe bytes[next] == 10 else { continue }
      next += 1
      let (data, size) = (next - 2 - EventShape.dataByteCount, EventShape.dataByteCount)
      if data >= used {
        unsafe (base + count * size).copyMemory(from: base + data, byteCount: size)
        count += 1
      }
      used = next
    }
    return (count, used)
  }

  private func check(_ event: UnsafeMutableRawPointer, _ dataOffset: Int, number: UInt64, _ index: Int) throws {
    let found = shape.decoded(unsafe event.loadUnaligned(fromByteOffset: dataOffset, as: UInt64.self))
    guard found == number else {
      throw BenchError("\(name): subscriber \(index) got event \(found) instead of \(number)")
    }
    guard let offset = shape.idOffset else { return }
    let id = unsafe UInt64(bigEndian: event.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    let first = firstID ?? id &- (number - firstNumber)
    firstID = first
    guard id == first &+ (number - firstNumber) else {
      throw BenchError("\(name): subscriber \(index) got event \(number) under id \(id)")
    }
  }
}
