import CLinux
import Glibc
import StreamRuntime
import Testing

@testable import StreamServer

/// How many replies with descriptors may be on their way, and until when one is.
@Suite struct MapsInFlightTests {
  private let maps = MapsInFlight()

  private func socketPair() throws -> (own: CInt, client: CInt) {
    var ends: [CInt] = [0, 0]
    try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
    return (ends[0], ends[1])
  }

  private func isAdded(
    by client: UInt64, _ user: UInt32, to socket: CInt = -1, _ written: MapsInFlight.WrittenBytes = .init()
  ) -> Bool {
    maps.add(of: client, .uid(user), to: socket, written) == nil
  }

  /// Users that read nothing have shares of what is free, and one that has none gets one.
  @Test func usersThatDoNotReadKeepNoMapFromOthers() {
    let shares = (0..<100 as Range<UInt32>).map { user in
      (0..<100).prefix { _ in isAdded(by: UInt64(user), user) }.count
    }
    #expect(shares.prefix(6) == [32, 16, 8, 4, 2, 1])
    #expect(shares[6..<71].allSatisfy { $0 == 1 } && shares[71...].allSatisfy { $0 == 0 })
    #expect(maps.add(of: 0, .uid(0), to: -1, .init()) == .init(own: 32, free: 0, capacity: 64))
    let excess = maps.add(of: 200, .uid(200), to: -1, .init())
    #expect(excess?.sentence(for: "uid 200") == "uid 200 has 0 maps that it has not received, with 0 of 128 left")
    maps.noteWithdrawn(by: 0)
    #expect(isAdded(by: 200, 200))
  }

  /// The kernel counts what is in a socket for the daemon's user, until the client has read it or has ended.
  @Test func aSocketWithUnreadMapsCountsAfterItsConnection() throws {
    let (own, client) = try socketPair()
    for _ in 0..<32 { #expect(isAdded(by: 1, 1, to: own)) }
    #expect(!isAdded(by: 1, 1, to: own) && !isAdded(by: 2, 1, to: own))
    #expect(isAdded(by: 3, 3))  // another user has a share of the rest
    maps.noteWithdrawn(by: 3)
    for offset in 0..<32 as Range<UInt64> {
      #expect(send(own, "x", 1, 0) == 1)
      maps.noteSent(by: 1, at: offset)
    }
    maps.leave(1, OwnedDescriptor(own))
    #expect(!isAdded(by: 2, 1))
    var buffer = [UInt8](repeating: 0, count: 64)
    #expect(recv(client, &buffer, 64, 0) == 32 && recv(client, &buffer, 64, 0) == 0)  // the end, after what was sent
    #expect(isAdded(by: 2, 1))
    close(client)
    // Without unread bytes the socket closes with its connection.
    let (second, peer) = try socketPair()
    #expect(isAdded(by: 4, 4, to: second))
    maps.noteSent(by: 4, at: 0)
    maps.leave(4, OwnedDescriptor(second))
    #expect(recv(peer, &buffer, 64, 0) == 0)
    close(peer)
  }

  /// A client that reads events, too, may never have read everything.
  @Test func aReplyIsReadBeforeWhatFollowsIt() throws {
    let (own, client) = try socketPair()
    defer {
      close(own)
      close(client)
    }
    let written = MapsInFlight.WrittenBytes()
    let events = [UInt8](repeating: 1, count: 2048)
    func write(_ bytes: [UInt8]) {
      #expect(send(own, bytes, bytes.count, 0) == bytes.count)
      written.count.add(UInt64(bytes.count), ordering: .releasing)
    }
    write(events)
    for _ in 0..<32 { #expect(isAdded(by: 1, 1, to: own, written)) }
    for _ in 0..<32 {
      let offset = written.count.load(ordering: .relaxed)
      write([2])
      maps.noteSent(by: 1, at: offset)
    }
    for _ in 0..<16 { write(events) }
    #expect(!isAdded(by: 1, 1, to: own, written))
    var buffer = [UInt8](repeating: 0, count: 2048 + 31)
    #expect(recv(client, &buffer, buffer.count, 0) == buffer.count)  // all replies but one
    #expect(!isAdded(by: 1, 1, to: own, written))  // the kernel's number is higher than that of the bytes
    buffer = [UInt8](repeating: 0, count: 15 * 2048)
    #expect(recv(client, &buffer, buffer.count, CInt(MSG_WAITALL)) == buffer.count)
    for _ in 0..<32 { #expect(isAdded(by: 1, 1, to: own, written)) }
    #expect(!isAdded(by: 1, 1, to: own, written))
  }
}
