import CLinux
import Glibc
import StreamRuntime
import Synchronization

/// A model on its own thread: answers each POST with server-sent events at a steady pace, and counts the requests by their
/// bodies. Each event has its number and the time at which it was written.
final class AnswerUpstream: @unchecked Sendable {  // all but constants and the counts is confined to its thread
  /// The events of an answer.
  static let eventCount = 200
  /// The time from one event of an answer to the next.
  static let pause: UInt64 = 5_000_000

  private final class Visit {
    let descriptor: OwnedDescriptor
    var unread: [UInt8] = []
    var sent = 0
    /// When the next event is due; nil: nothing was asked.
    var due: UInt64?
    init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }
  }

  let port: UInt16
  private let listener: OwnedDescriptor
  private var visits: [Visit] = []
  private let counts = Mutex<[String: Int]>([:])
  private let isStopped = Atomic(false)

  init() throws {
    listener = try HTTPUpstream.listen()
    port = HTTPUpstream.port(of: listener.raw)
    var thread = pthread_t()
    let box = unsafe Unmanaged.passRetained(self)
    let result = unsafe pthread_create(
      &thread, nil,
      { argument in
        if let argument = unsafe argument {
          unsafe Unmanaged<AnswerUpstream>.fromOpaque(argument).takeRetainedValue().serve()
        }
        return nil
      }, unsafe box.toOpaque())
    guard result == 0 else { throw SystemError("pthread_create", code: result) }
    pthread_detach(thread)
  }

  /// The requests so far, by their bodies.
  var requests: [String: Int] { counts.withLock { $0 } }

  func stop() { isStopped.store(true, ordering: .relaxed) }

  private func serve() {
    while !isStopped.load(ordering: .relaxed) {
      var watched = [pollfd(fd: listener.raw, events: Int16(POLLIN), revents: 0)]
      watched += visits.map { pollfd(fd: $0.descriptor.raw, events: Int16(POLLIN), revents: 0) }
      let next = visits.compactMap(\.due).min()
      // The pace need not be exact: each event has the time at which it was written.
      let now = monotonicNanoseconds()
      let wait = next.map { $0 > now ? 1 + ($0 - now) / 1_000_000 : 0 } ?? 50
      unsafe poll(&watched, nfds_t(watched.count), CInt(min(wait, 50)))
      let present = visits
      if watched[0].revents != 0 { accept() }
      for (visit, state) in zip(present, watched.dropFirst()) where state.revents != 0 { read(visit) }
      for visit in visits { sendDue(visit) }
    }
  }

  private func accept() {
    let raw = accept4(listener.raw, nil, nil, CInt(SOCK_CLOEXEC.rawValue))
    guard raw >= 0 else { return }
    var on: CInt = 1
    unsafe setsockopt(raw, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
    visits.append(Visit(OwnedDescriptor(raw)))
  }

  private func read(_ visit: Visit) {
    let count = unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
      let count = unsafe recv(visit.descriptor.raw, buffer.baseAddress, buffer.count, 0)
      if count > 0 { unsafe visit.unread += UnsafeRawBufferPointer(rebasing: buffer[..<count]) }
      return count
    }
    guard count > 0 else { return visits.removeAll { $0 === visit } }
    // Bodies have the length that the row gives them.
    guard visit.due == nil, let end = visit.unread.firstRange(of: [13, 10, 13, 10])?.upperBound,
      visit.unread.count - end >= AnswerLoad.bodyByteCount
    else { return }
    let body = String(decoding: visit.unread[end...], as: UTF8.self)
    counts.withLock { $0[body, default: 0] += 1 }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    _ = write(Array(head.utf8), to: visit.descriptor.raw)
    (visit.unread, visit.due) = ([], monotonicNanoseconds() + Self.pause)
  }

  private func sendDue(_ visit: Visit) {
    guard let due = visit.due, due <= monotonicNanoseconds() else { return }
    visit.sent += 1
    let event = "data: {\"number\":\(visit.sent),\"at\":\(monotonicNanoseconds()),\"token\":\"word \"}\n\n"
    guard write(Array(event.utf8), to: visit.descriptor.raw), visit.sent < Self.eventCount else {
      return visits.removeAll { $0 === visit }
    }
    visit.due = due + Self.pause
  }
}
