import CLinux
import Glibc
import StreamRuntime

/// A publisher that never limits the rate: its requests are prepared in a block, and only numbers and times are filled
/// in. It stays within its credit, and within a window ahead of the slowest subscriber.
@safe final class Feeder {
  let socket: CInt
  /// Events passed to the kernel, completely or in part.
  private(set) var sent: Int
  private let broker: any Broker
  private let shape: EventShape
  private var credit: Int
  private let block: UnsafeMutableRawBufferPointer
  private let answers: UnsafeMutableRawBufferPointer
  private let capacity: Int
  /// The bytes of counted events that the socket has not accepted yet.
  private var unwritten: Range<Int> = 0..<0
  var hasUnwritten: Bool { !unwritten.isEmpty }

  init(_ broker: any Broker) throws {
    self.broker = broker
    shape = broker.shape
    credit = broker.initialCredit
    sent = broker.eventsOnConnecting
    socket = try broker.connectPublisher()
    _ = fcntl(socket, F_SETFL, O_NONBLOCK)
    capacity = (64 << 10) / shape.request.count
    unsafe block = .allocate(byteCount: capacity * shape.request.count, alignment: 64)
    for index in 0..<capacity {
      unsafe block[index * shape.request.count..<(index + 1) * shape.request.count].copyBytes(from: shape.request)
    }
    unsafe answers = .allocate(byteCount: 64 << 10, alignment: 64)
  }

  deinit {
    close(socket)
    unsafe block.deallocate()
    unsafe answers.deallocate()
  }

  /// Reads the broker's replies: credit, or others, which are ignored.
  func hear() throws {
    while true {
      let count = unsafe recv(socket, answers.baseAddress, answers.count, 0)
      if count < 0, errno == EAGAIN || errno == EINTR { return }
      guard count > 0 else { throw BenchError("\(broker.name) hung up on the publisher after \(sent) events") }
      let more = try unsafe broker.credit(from: UnsafeRawBufferPointer(rebasing: answers[..<count]))
      credit = credit > .max - more ? .max : credit + more
    }
  }

  /// Sends events until their total is `limit`, the socket is full, or the credit is used up.
  func feed(upTo limit: Int) throws {
    while true {
      if unwritten.isEmpty {
        let count = min(capacity, limit - sent, credit)
        guard count > 0 else { return }
        fill(count)
      }
      let written = unsafe send(
        socket, block.baseAddress.map { unsafe $0 + unwritten.lowerBound }, unwritten.count, CInt(MSG_NOSIGNAL))
      guard written > 0 else {
        if errno == EAGAIN || errno == EINTR { return }
        throw SystemError("send", broker.name)
      }
      unwritten = unwritten.lowerBound + written..<unwritten.upperBound
    }
  }

  private func fill(_ count: Int) {
    let size = shape.request.count
    let now = shape.encoded(monotonicNanoseconds())
    for index in 0..<count {
      let data = index * size + shape.requestDataOffset
      unsafe block.storeBytes(of: shape.encoded(UInt64(sent + index)), toByteOffset: data, as: UInt64.self)
      unsafe block.storeBytes(of: now, toByteOffset: data + 8, as: UInt64.self)
    }
    sent += count
    if credit < .max { credit -= count }
    unwritten = 0..<count * size
  }
}
