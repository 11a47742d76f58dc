import CLinux
import Glibc
import RSocket
import StreamRuntime

/// A publisher of different events of 64 bytes, again and again in the same order, as fast as it has credit.
@safe final class RoundPublisher {
  let socket: CInt
  private let broker: StreamdBroker
  /// Whole rounds of events.
  private let block: [UInt8]
  private let eventByteCount: Int
  private var sentByteCount = 0
  private var credit = 0
  private var answers = [UInt8](repeating: 0, count: 64 << 10)

  /// - Parameter beginnings: of the JSON texts, up to the quote of a string that fills them up.
  init(_ broker: StreamdBroker, _ beginnings: [String]) throws {
    self.broker = broker
    let events = beginnings.map { text -> [UInt8] in
      let padding = String(repeating: "x", count: EventShape.dataByteCount - 2 - text.utf8.count)
      let data = Array((text + padding + "\"}").utf8)
      return StreamdBroker.encoded(
        .payload(StreamID(1), Payload(data: data), follows: false, isComplete: false, isNext: true))
    }
    eventByteCount = events[0].count
    let round = events.flatMap(\.self)
    block = Array(repeatElement(round, count: max(1, (64 << 10) / round.count)).joined())
    socket = try broker.connectPublisher()
    _ = fcntl(socket, F_SETFL, O_NONBLOCK)
  }

  deinit { close(socket) }

  /// Events passed to the kernel completely.
  var sent: Int { sentByteCount / eventByteCount }

  /// Sends as many events as there is credit for.
  func feed() throws {
    while credit > 0 {
      let offset = sentByteCount % block.count
      let count = min(
        min(block.count - offset, 64 << 10), credit * eventByteCount - sentByteCount % eventByteCount)
      let written = unsafe block.withUnsafeBytes {
        unsafe send(socket, $0.baseAddress.map { unsafe $0 + offset }, count, CInt(MSG_NOSIGNAL))
      }
      guard written > 0 else {
        if errno == EAGAIN || errno == EINTR { return }
        throw SystemError("send", "streamd")
      }
      let before = sent
      sentByteCount += written
      credit -= sent - before
    }
  }

  /// Reads the credit that the daemon grants.
  func hear() throws {
    while true {
      let count = unsafe recv(socket, &answers, answers.count, 0)
      if count < 0, errno == EAGAIN || errno == EINTR { return }
      guard count > 0 else { throw BenchError("streamd hung up on the publisher after \(sent) events") }
      credit += try unsafe answers.withUnsafeBytes {
        try unsafe broker.credit(from: UnsafeRawBufferPointer(rebasing: $0[..<count]))
      }
    }
  }

  /// Sends until a condition holds, waiting for credit and for space in the socket.
  func run(until isDone: (RoundPublisher) -> Bool) throws {
    while !isDone(self) {
      try feed()
      var ready = pollfd(fd: socket, events: Int16(POLLIN | (credit > 0 ? POLLOUT : 0)), revents: 0)
      unsafe poll(&ready, 1, 100)
      try hear()
    }
  }
}
