import Testing

@testable import RSocket

/// A session beside a server's machine, without a socket, a clock or a thread.
@Suite struct ClientSessionTests {
  /// The interval of KEEPALIVE is 10 s, the maximum lifetime 25 s.
  private func begin(asksAtOnce: Bool = false, unwrittenByteLimit: Int = 1000) -> ClientSession {
    let setup = Setup(keepaliveInterval: .seconds(10), maximumLifetime: .seconds(25))
    return ClientSession(
      connectingWith: setup, limits: ConnectionLimits(), unwrittenByteLimit: unwrittenByteLimit, asksAtOnce: asksAtOnce,
      at: .seconds(100))
  }

  /// What the session writes to a socket that takes `room` bytes, at most `piece` in one call.
  private func written(_ session: inout ClientSession, room: Int = .max, piece: Int = .max) -> [UInt8] {
    var bytes: [UInt8] = []
    session.write {
      let count = min($0.count, piece, room - bytes.count)
      bytes += $0[..<count]
      return count
    }
    return bytes
  }

  /// The server's answer, which the session receives.
  private func answer(to bytes: [UInt8], from server: inout ConnectionMachine) -> [UInt8] {
    var events: [ConnectionMachine.Event] = []
    bytes.withUnsafeBytes { server.receive($0, into: &events) }
    return server.takeOutput()
  }

  private func receive(_ bytes: [UInt8], at now: Duration, _ session: inout ClientSession) -> [ConnectionMachine.Event]
  {
    var events: [ConnectionMachine.Event] = []
    bytes.withUnsafeBytes { session.receive($0, at: now, into: &events) }
    return events
  }

  private static let keepalive = {
    var bytes: [UInt8] = []
    Frame.keepalive(respond: true, position: 0, data: []).encode(into: &bytes)
    return bytes
  }()

  // MARK: Time

  @Test func aKeepaliveComesAfterEachInterval() {
    var session = begin()
    _ = written(&session)
    #expect(session.next(at: .seconds(100)) == .seconds(110) && written(&session).isEmpty)
    #expect(session.next(at: .seconds(109)) == .seconds(110) && written(&session).isEmpty)
    #expect(session.next(at: .seconds(110)) == .seconds(120) && written(&session) == Self.keepalive)
    #expect(session.next(at: .seconds(121)) == .seconds(125) && written(&session) == Self.keepalive)
    session = begin(asksAtOnce: true)
    _ = written(&session)
    #expect(session.next(at: .seconds(100)) == .seconds(110) && written(&session) == Self.keepalive)
  }

  @Test func aServerMayBeSilentForTheMaximumLifetime() {
    var (session, server) = (begin(asksAtOnce: true), ConnectionMachine())
    #expect(session.next(at: .seconds(124)) != nil && session.next(at: .seconds(125)) == nil)
    session = begin(asksAtOnce: true)
    _ = session.next(at: .seconds(100))
    let reply = answer(to: written(&session), from: &server)
    #expect(!session.hasReceived)
    // A part of a frame is a sign of life as well.
    for (second, byte) in zip([120, 140, 160], reply) {
      #expect(receive([byte], at: .seconds(second), &session).isEmpty && session.hasReceived)
    }
    #expect(session.next(at: .seconds(184)) == .seconds(185) && session.next(at: .seconds(185)) == nil)
  }

  @Test func aServerThatIsNotReadMayBeSilentAndIsAskedForNothing() {
    var (session, server) = (begin(), ConnectionMachine())
    _ = answer(to: written(&session), from: &server)
    session.setReading(false, at: .seconds(105))
    #expect(session.next(at: .seconds(200)) == .seconds(210))
    let keepalive = written(&session)
    #expect(!keepalive.isEmpty && answer(to: keepalive, from: &server).isEmpty)
    session.setReading(true, at: .seconds(205))
    session.setReading(true, at: .seconds(209))  // it was read before: nothing begins anew
    #expect(session.next(at: .seconds(229)) == .seconds(230) && session.next(at: .seconds(230)) == nil)
  }

  // MARK: Writing

  @Test(arguments: [1, 7, .max]) func bytesKeepTheirOrderWhateverTheSocketTakes(piece: Int) {
    var (session, whole) = (begin(), begin())
    for index in 0..<5 as Range<UInt8> {
      let payload = Payload(data: Array(repeating: index, count: 20))
      #expect(session.machine.request(.stream, payload) == whole.machine.request(.stream, payload))
    }
    var bytes: [UInt8] = []
    repeat { bytes += written(&session, room: 30, piece: piece) } while session.awaitsSocket
    #expect(bytes == written(&whole) && session.unwrittenByteCount == 0)
  }

  @Test func noKeepaliveFollowsWhatIsNotTaken() {
    var session = begin()
    _ = written(&session, room: 5)
    #expect(session.awaitsSocket)
    let count = session.unwrittenByteCount
    #expect(session.next(at: .seconds(115)) == .seconds(125) && session.unwrittenByteCount == count)
  }

  @Test func aServerThatDoesNotReadIsNoticedAtTheLimit() {
    var session = begin(unwrittenByteLimit: 200)
    _ = written(&session, room: 0)
    #expect(!session.isUnread)
    let rest = 200 - session.unwrittenByteCount
    // In the session, in the machine, and in both.
    _ = session.machine.request(.stream, Payload(data: Array(repeating: 0, count: rest)))
    #expect(session.isUnread)
    _ = written(&session, room: 60)
    #expect(!session.isUnread && session.unwrittenByteCount > 0)
  }

  @Test func theLastBytesOfAServerThatIsGoneAreReadable() {
    var (session, server) = (begin(asksAtOnce: true), ConnectionMachine())
    let id = session.machine.request(.response, Payload())
    _ = answer(to: written(&session), from: &server)
    server.sendError(StreamID(1), .rejected, "no")
    _ = session.next(at: .seconds(100))
    session.write { _ in -32 }
    #expect(session.writeError == 32 && session.unwrittenByteCount == 0)
    _ = session.next(at: .seconds(110))
    session.write { _ in
      Issue.record("a second write")
      return 0
    }
    #expect(session.unwrittenByteCount == 0)
    #expect(receive(server.takeOutput(), at: .seconds(111), &session) == [.error(StreamID(1), .rejected, "no")])
    #expect(id == StreamID(1))
  }

  /// Where the owner's buffer ends is of no account.
  @Test func valuesAreGathered() {
    var (session, server) = (begin(), ConnectionMachine())
    _ = session.machine.request(.stream, Payload())
    _ = answer(to: written(&session), from: &server)
    for byte in 0..<3 as Range<UInt8> { server.sendPayload(StreamID(1), Payload(data: [byte])) }
    let bytes = server.takeOutput()
    #expect(receive(bytes, at: .seconds(101), &session) == [.payloads(StreamID(1), 0..<bytes.count)])
  }
}
