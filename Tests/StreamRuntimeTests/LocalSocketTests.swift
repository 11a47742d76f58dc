import CLinux
import Glibc
import TestSupport
import Testing

@testable import StreamRuntime

/// What a peer sends does not make a call of this process wait. Each test runs with the kernel's own rule, where it has one, and
/// in a process without it.
@Suite(.timeLimit(.minutes(10))) struct LocalSocketTests {
  private struct Failure: Error {}

  /// Two ends of a connection; this process reads the second one.
  private static func pair(_ type: __socket_type = SOCK_STREAM) throws -> (theirs: CInt, own: CInt) {
    var ends: [CInt] = [-1, -1]
    guard socketpair(AF_UNIX, CInt(type.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else { throw Failure() }
    return (ends[0], ends[1])
  }

  private static func receive(_ socket: CInt, atMost limit: Int = 1 << 16, flags: CInt = 0) -> (
    count: Int, code: CInt, bytes: [UInt8]
  ) {
    var room = [UInt8](repeating: 0, count: limit)
    let (count, code) = room.withUnsafeMutableBytes { (LocalSocket.receive(socket, into: $0, flags: flags), errno) }
    return (count, count < 0 ? code : 0, Array(room.prefix(max(0, min(count, limit)))))
  }

  private static func check(_ holds: Bool, line: Int = #line) throws {
    guard !holds else { return }
    print("the check in line \(line) of LocalSocketTests has failed")
    throw Failure()
  }

  private static func eventually(_ condition: () -> Bool) -> Bool {
    let deadline = hangDeadline()
    while !condition() {
      guard EventLoop.monotonicNow() < deadline else { return false }
      usleep(1000)
    }
    return true
  }

  // MARK: Reading and closing

  private static func refuseInReads() throws {
    for (type, flags) in [(SOCK_STREAM, 0), (SOCK_STREAM, CInt(MSG_OOB)), (SOCK_SEQPACKET, 0)] {
      let ends = try pair(type)
      let theirs = OwnedDescriptor(ends.theirs)
      let own = OwnedDescriptor(ends.own)
      try check(LocalSocket.refuseDescriptors(on: own.raw))
      let sent = try LingeringSocket()
      let code = sent.send([1], over: theirs.raw, flags: flags)
      let received = receive(own.raw)
      guard !LocalSocket.isKernelInCharge else {
        try check(code == EPERM && received.code == EAGAIN)
        continue
      }
      try check(code == 0 && received.code == EPROTO)
      try check(receive(own.raw).code == EPROTO && !sent.isClosed)  // it stays in the queue
      close(own)
      try check(eventually { sent.isClosed })
      _ = theirs.raw
    }
  }

  private static func close(_ socket: consuming OwnedDescriptor) {}

  private static func closeUnread() throws {
    for type in [SOCK_STREAM, SOCK_SEQPACKET] {
      let ends = try pair(type)
      let theirs = OwnedDescriptor(ends.theirs)
      let own = OwnedDescriptor(ends.own)
      try check(LocalSocket.refuseDescriptors(on: own.raw))
      let sent = [try LingeringSocket(), try LingeringSocket()]
      for one in sent {
        try check(one.send([1], over: theirs.raw) == (LocalSocket.isKernelInCharge ? EPERM : 0))
      }
      close(own)
      try check(LocalSocket.isKernelInCharge || eventually { sent.allSatisfy(\.isClosed) })
      _ = theirs.raw
    }
  }

  /// The service manager's sockets had no rule when these clients connected.
  private static func acceptThoseWithoutDescriptors() throws {
    let folder = try TemporaryFolder()
    let listening = try UnixSocket.listen(at: folder.path("s"), mode: 0o600)
    LocalSocket.admitDescriptors(on: listening.raw)
    let hostile = try UnixSocket.connect(to: folder.path("s"))
    let other = try UnixSocket.connect(to: folder.path("s"))
    let sent = try LingeringSocket()
    try check(Glibc.send(hostile.raw, [UInt8](repeating: 2, count: 100_000), 100_000, 0) == 100_000)
    try check(sent.send([1], over: hostile.raw) == 0)
    try check(Glibc.send(other.raw, [3], 1, 0) == 1)
    let loop = try EventLoop(name: "test")
    var bytes: [[UInt8]] = []
    let listener = Listener(
      listening, on: loop,
      accepted: { socket in
        bytes.append(receive(socket.raw).bytes)
        loop.stop()
      }, paused: { _ in })
    listener.start()
    loop.run()
    if LocalSocket.isKernelInCharge {
      try check(bytes == [[3]])
      try check(eventually { sent.isClosed })
      let late = try UnixSocket.connect(to: folder.path("s"))
      try check(try LingeringSocket().send([1], over: late.raw) == EPERM)
    } else {
      // The first one is served until it is read.
      try check(bytes.count == 2 && bytes[1] == [3])
      try check(eventually { sent.isClosed })
    }
    listener.stop()
  }

  private static func closeAListener() throws {
    let folder = try TemporaryFolder()
    let listening = try UnixSocket.listen(at: folder.path("s"), mode: 0o600)
    let client = try UnixSocket.connect(to: folder.path("s"))
    let sent = try LingeringSocket()
    try check(sent.send([1], over: client.raw) == (LocalSocket.isKernelInCharge ? EPERM : 0))
    close(listening)
    try check(LocalSocket.isKernelInCharge || eventually { sent.isClosed })
  }

  private static func receiveTheRest() throws {
    let ends = try pair()
    let theirs = OwnedDescriptor(ends.theirs)
    let own = OwnedDescriptor(ends.own)
    LocalSocket.refuseDescriptors(on: own.raw)
    try check(receive(own.raw).code == EAGAIN)
    let bytes = (0..<50_000).map { UInt8(truncatingIfNeeded: $0) }
    var received: [UInt8] = []
    for piece in stride(from: 0, to: bytes.count, by: 10_000) {
      try check(Glibc.send(theirs.raw, Array(bytes[piece..<piece + 10_000]), 10_000, 0) == 10_000)
      received += receive(own.raw, atMost: 7000).bytes
    }
    while received.count < bytes.count { received += receive(own.raw, atMost: 3000).bytes }
    try check(received == bytes)
    shutdown(theirs.raw, CInt(SHUT_WR))
    try check(receive(own.raw) == (0, 0, []))
    let other = try pair(SOCK_SEQPACKET)
    let sender = OwnedDescriptor(other.theirs)
    let messages = OwnedDescriptor(other.own)
    LocalSocket.refuseDescriptors(on: messages.raw)
    for message in [[1, 2, 3], [], [4]] as [[UInt8]] { Glibc.send(sender.raw, message, message.count, 0) }
    try check(receive(messages.raw, atMost: 2, flags: CInt(MSG_TRUNC)) == (3, 0, [1, 2]))
    try check(receive(messages.raw, flags: CInt(MSG_TRUNC)) == (0, 0, []))
    try check(receive(messages.raw, flags: CInt(MSG_TRUNC)) == (1, 0, [4]))
    try check(receive(messages.raw).code == EAGAIN)
  }

  private static func assumeOldKernel() { LocalSocket.isOldKernelAssumed.store(true, ordering: .relaxed) }

  @Test func aReadLeavesDescriptorsInTheQueueOrTheyDoNotCome() async throws {
    try Self.refuseInReads()
    await #expect(processExitsWith: .success) {
      Self.assumeOldKernel()
      try Self.refuseInReads()
    }
  }

  @Test func theCloseOfASocketDoesNotWaitForDescriptorsInItsQueue() async throws {
    try Self.closeUnread()
    await #expect(processExitsWith: .success) {
      Self.assumeOldKernel()
      try Self.closeUnread()
    }
  }

  @Test func aConnectionThatWasMadeBeforeTheRuleIsExamined() async throws {
    try Self.acceptThoseWithoutDescriptors()
    await #expect(processExitsWith: .success) {
      Self.assumeOldKernel()
      try Self.acceptThoseWithoutDescriptors()
    }
  }

  @Test func theCloseOfAListenerDoesNotWaitForConnectionsInItsQueue() async throws {
    try Self.closeAListener()
    await #expect(processExitsWith: .success) {
      Self.assumeOldKernel()
      try Self.closeAListener()
    }
  }

  @Test func everythingElseIsReceivedAsWithoutTheRule() async throws {
    try Self.receiveTheRest()
    await #expect(processExitsWith: .success) {
      Self.assumeOldKernel()
      try Self.receiveTheRest()
    }
  }
}
