import CLinux
import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import TaggedFields
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// The format of saved connections, which later versions read.
@Suite struct SavedStateTests {
  private static func encoded(_ frame: Frame) -> [UInt8] {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    return bytes
  }

  private static let split = encoded(.requestN(StreamID(1), 1))
  private static let asked = encoded(.keepalive(respond: true, position: 0, data: [1]))
  private static let answered = encoded(.keepalive(respond: false, position: 0, data: [2]))

  /// What `Fixtures/connections-4` has: every field that version 4 began with, none at its default.
  private static var connections: SavedConnections {
    var machine = ConnectionMachine.Saved()
    (machine.isOpen, machine.metadataFormat, machine.usesLeases) = (true, .text, true)
    (machine.keepaliveMilliseconds, machine.lifetimeMilliseconds, machine.leaseCount) = (20_000, 90_000, 7)
    (machine.tail, machine.output) = (Array(split.dropLast(2)), answered)
    var value = ConnectionMachine.Saved.Assembly()
    (value.initialRequest, value.isComplete, value.payload) = (3, true, Payload(metadata: [], data: [4, 5]))
    var request = value
    (request.kind, request.payload) = (.channel, Payload(metadata: Array("p".utf8), data: [6]))
    let open: [(id: UInt32, RequestKind, state: UInt8, ConnectionMachine.Saved.Assembly?)] = [
      (1, .stream, 2, nil), (3, .channel, 11, value), (5, .channel, 3, nil), (7, .channel, 4, request),
    ]
    machine.requests = open.map { id, kind, state, assembly in
      var request = ConnectionMachine.Saved.Request()
      (request.id, request.kind, request.state, request.assembly) = (StreamID(id), kind, state, assembly)
      request.inboundCredit = id + 1
      return request
    }
    let connection = SavedConnection(
      descriptor: -1, number: 258, machine: machine, silence: 1_000_000_000, input: split.suffix(2) + asked,
      unsent: answered,
      subscriptions: [
        .init(
          stream: "s", id: StreamID(1), format: EventFormat(ids: true, completes: true), onLag: .latest,
          cursor: Cursor(position: 1002, sentBytes: 1), credit: .max(3), gap: Gap(count: 2))
      ],
      channels: [
        .init(id: StreamID(3), stream: "p", credit: 5, named: nil),
        .init(
          id: StreamID(5), stream: "p", credit: 6,
          named: ChannelNumbering(name: [9], next: 10, demand: 11, confirmed: 8)),
      ])
    var waiting = EventBatch([[], [1, 2, 3]])
    waiting.checkpoint = Checkpoint([4])
    return SavedConnections(
      [connection, SavedConnection(descriptor: -1, number: 259)], waiting: [.init(stream: "s", events: waiting)],
      ends: ["p": StreamEnd(position: 300), "s": StreamEnd(position: 1004, countedFrom: 1000)])
  }

  @Test func aFilterOfManySubscriptionsIsSavedOnce() throws {
    let long = try EventFilter(.init("/a", .hasPrefix(String(repeating: "x", count: 4000))))
    let other = try EventFilter(.init("/b", .equals(1)))
    var connection = SavedConnection(
      descriptor: -1, number: 1, machine: ConnectionMachine.Saved(), silence: 0, input: [], unsent: [],
      subscriptions: [], channels: [])
    connection.machine.isOpen = true
    for number in 0..<1000 as Range<UInt32> {
      var request = ConnectionMachine.Saved.Request()
      (request.id, request.kind, request.state) = (StreamID(number * 2 + 1), .stream, 2)
      connection.machine.requests.append(request)
      connection.subscriptions.append(
        .init(
          stream: "s", id: StreamID(number * 2 + 1),
          format: EventFormat(ids: true, completes: false, counts: number % 5 != 4), onLag: .skip,
          cursor: Cursor(position: 1), filter: [long, other, long, other, nil][Int(number % 5)]))
    }
    let saved = SavedConnections([connection, connection])
    let state = saved.state(ofFirst: 2)
    #expect(state.count < 2000 * 100)
    #expect(try SavedConnections(state: state) == saved)
  }

  @Test func aSubscriptionWithTheNumberOfNoFilterIsMalformed() throws {
    let filter = try EventFilter(.init("/b", .equals(1)))
    var connection = SavedConnection(
      descriptor: -1, number: 1, machine: ConnectionMachine.Saved(), silence: 0, input: [], unsent: [],
      subscriptions: [], channels: [])
    connection.subscriptions = [1, 3].map {
      .init(
        stream: "s", id: StreamID($0), format: EventFormat(ids: true, completes: false, counts: true),
        onLag: .skip, cursor: Cursor(position: 1), filter: filter)
    }
    let state = SavedConnections([connection]).state(ofFirst: 1)
    let content = Array(state.dropFirst(SavedState.headerBytes))
    let reference: [UInt8] = [0x80, 4, 0, 0, 0, 1, 1]
    let place = try #require(content.indices.first { content[$0...].starts(with: reference) })
    var changed = content
    changed[place + 6] = 2
    #expect(throws: InvalidSavedState(reason: "there is no filter 2 before it")) {
      try SavedConnections(state: SavedState.seal(changed, as: .connections))
    }
  }

  @Test func theTimeOfAStreamWithALimitIsSaved() throws {
    var end = StreamEnd(position: 7)
    end.freshness = .init(provedAt: 1 << 40, demandedSince: 1 << 39, isStale: true)
    let saved = SavedConnections([], ends: ["s": end])
    #expect(try SavedConnections(state: saved.state(ofFirst: 0)) == saved)
  }

  @Test func valuesOfAPublisherThatTheStreamHasNotStoredAreSaved() throws {
    var saved = Self.connections
    saved.connections[0].channels[0].held = .init(
      values: [[], [1, 2]], unsettled: UnsettledValues(count: 3, byteCount: 40), isComplete: true)
    saved.connections[0].channels[1].held = .init(values: [[7]])
    let read = try SavedConnections(state: saved.state(ofFirst: 2))
    #expect(read == saved && read.connections.allSatisfy { $0.isPossible })
  }

  @Test(arguments: [
    UnsettledValues(count: .max, byteCount: 0), UnsettledValues(count: -1, byteCount: 0),
    UnsettledValues(count: 1, byteCount: .max), UnsettledValues(count: 9, byteCount: 9),
  ]) func impossibleValuesOfAPublisherAreFound(unsettled: UnsettledValues) {
    var connection = Self.connections.connections[0]
    connection.channels[1].held = .init(values: [[1]], unsettled: unsettled)
    #expect(!connection.isPossible)
    var posting = SavedConnection()
    posting.http = SavedHTTP()
    posting.http?.count = 8
    #expect(posting.isPossible)
    posting.http?.unsettled = unsettled
    #expect(!posting.isPossible)
  }

  // MARK: Other versions

  @Test func version4IsRead() throws {
    #expect(try SavedConnections(state: fixture("connections-4")) == Self.connections)
  }

  /// A change of the format adds a fixture, and does not change the others.
  @Test func theCurrentVersionWritesTheNewestFixture() throws {
    #expect(try Self.connections.state(ofFirst: 2) == fixture("connections-4"))
  }

  @Test func restoredConnectionsOfTheFixtureAreServed() async throws {
    var saved = try SavedConnections(state: fixture("connections-4"))
    var pair: [CInt] = [-1, -1]
    let kind = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    #expect(socketpair(AF_UNIX, kind, 0, &pair) == 0)
    saved.attach(pair[0], to: 0)
    saved.dropDetached()
    // The partly sent fragment belongs to another log.
    saved.connections[0].subscriptions[0].cursor.sentBytes = 0
    let harness = try ServerHarness(restores: true)
    var configuration = StreamConfiguration(name: "s", start: .always)
    configuration.limits = .init(events: 8)
    let log = try #require(EventLog(name: "s", limits: configuration.limits, firstID: 1000))
    log.append([[0], [1], [2], [3]])
    try harness.server.add(configuration, log: log, source: HandFedSource())
    try harness.addPublished("p")
    await harness.restore(saved)
    let client = WireClient(taking: pair[1])
    for _ in 0..<2 { #expect(try client.receive() == .keepalive(respond: false, position: 0, data: [2])) }
    var (hasAnswer, event) = (false, nil as Payload?)
    while !hasAnswer || event == nil, let frame = try client.receive() {
      if frame == .keepalive(respond: false, position: 0, data: [1]) { hasAnswer = true }
      if case .payload(StreamID(1), let payload, _, _, true) = frame { event = payload }
    }
    #expect(event?.data == [2] && event?.metadata?.suffix(8) == [0, 0, 0, 0, 0, 0, 0, 2])
    // The held events follow the stored ones.
    #expect(log.element(at: 1005).data == [1, 2, 3] && log.checkpoint == Checkpoint([4]))
    await harness.stop()
  }

  /// A version that has more fields.
  private struct Later: TaggedRecord {
    var connections = SavedConnections()
    var ignored = 7 as UInt32
    var mandatory = 0 as UInt32

    mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
      try connections.visit(&fields)
      try fields.field(1000, &ignored)
      try fields.field(RecordFields.mandatoryBit | 1, &mandatory)
    }
  }

  @Test func unknownFieldsAreSkippedUnlessMandatory() throws {
    var later = Later(connections: Self.connections)
    func read() throws -> SavedConnections {
      try SavedConnections(state: SavedState.seal(RecordFields.bytes(of: later), as: .connections))
    }
    #expect(try read() == Self.connections)
    later.mandatory = 1
    let refusal = InvalidSavedState(reason: "it has field 32769, which this version does not know and may not ignore")
    #expect(throws: refusal) { try read() }
  }

  @Test func missingFieldsHaveTheirDefaults() throws {
    let state = RecordFields.bytes(of: Self.connections)
    var later = try RecordFields.read(Later.self, from: state[...])
    #expect(later.connections == Self.connections && later.ignored == 7)
    later = try RecordFields.read(Later.self, from: [])
    #expect(later.connections == SavedConnections([]))
  }

  @Test(arguments: [3, 5] as [UInt8]) func anotherFormatIsRefusedWithItsVersion(version: UInt8) throws {
    var state = Self.connections.state(ofFirst: 2)
    state[7] = version
    let refusal = InvalidSavedState(reason: "its format is version \(version), and this is written for version 4")
    #expect(throws: refusal) { try SavedConnections(state: state) }
  }

  // MARK: Damage

  @Test func anyChangedByteOrLengthIsRefused() throws {
    let state = Self.connections.state(ofFirst: 2)
    for count in 0..<state.count {
      #expect(throws: InvalidSavedState.self) { try SavedConnections(state: Array(state.prefix(count))) }
    }
    #expect(throws: InvalidSavedState.self) { try SavedConnections(state: state + [0]) }
    // Except the number of attempts, and the free bytes next to it.
    for index in state.indices where !(8..<12).contains(index) {
      var damaged = state
      damaged[index] ^= 0x10
      #expect(throws: InvalidSavedState.self, "byte \(index)") { try SavedConnections(state: damaged) }
    }
    var counted = state
    counted[SavedState.attemptsOffset] = 2
    #expect(try SavedConnections(state: counted) == Self.connections)
    #expect(SavedState.attempts(in: counted) == 2 && SavedState.attempts(in: [1, 2]) == 0)
  }

  @Test(
    arguments: [
      ([0, 1, 0, 0, 0, 1], "it is cut off"), ([0, 1, 0, 0, 0], "it is cut off"),
      ([0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], "field 1 follows field 1"),
      ([0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], "field 1 follows field 2"),
      ([0, 2, 0, 0, 0, 3, 0, 0, 0], "the list in field 2 is cut off"),
      ([0, 2, 0, 0, 0, 4, 255, 255, 255, 255], "the list in field 2 is cut off"),
      (
        [0, 3, 0, 0, 0, 19, 0, 0, 0, 15, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        "field 1 is not a number of 64 bits"
      ),
      ([0, 2, 0, 0, 0, 11, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 255], "field 1 is not UTF-8"),
      (
        [0, 3, 0, 0, 0, 18, 0, 0, 0, 14, 0, 1, 0, 0, 0, 8, 255, 0, 0, 0, 0, 0, 0, 0],
        "no server had its connection 18374686479671623680"
      ),
      ([0, 3, 0, 0, 0, 8] + [UInt8](repeating: 0, count: 8), "no server had its connection 0"),
      ([0, 3, 0, 0, 0, 14, 0, 0, 0, 10, 0, 6, 0, 0, 0, 4, 0, 0, 0, 0], "a record has no request"),
    ] as [([UInt8], String)]) func invalidFieldsAreRefused(content: [UInt8], reason: String) throws
  {
    #expect(throws: InvalidSavedState(reason: reason)) {
      try SavedConnections(state: SavedState.seal(content, as: .connections))
    }
  }
}
