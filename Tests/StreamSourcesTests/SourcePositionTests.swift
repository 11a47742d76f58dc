import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// The position at which a source resumes in the next process, from the log.
@Suite(.timeLimit(.minutes(10))) struct SourcePositionTests {
  let upstream: Upstream
  let key = uniqueKey()
  private let fingerprint = BodyDigest(value: 0x0123_4567_89AB_CDEF)

  init() throws { upstream = try Upstream.shared.get() }

  private var positions: [SourcePosition] {
    [
      .poll(BodyDigest(value: 7), entityTag: "\"a\"", lastModified: "Mon, 01 Jan 2024 00:00:00 GMT"),
      .poll(BodyDigest(value: .max), entityTag: nil, lastModified: nil),
      .poll(BodyDigest(value: 3), entityTag: nil, lastModified: nil, position: .init("é")),
      .poll(BodyDigest(value: 3), entityTag: "\"a\"", lastModified: nil, position: .init("7", isNumber: true)),
      .serverSentEvents(lastEventID: Array("é 7".utf8), reconnectionTime: .seconds(3)),
      .serverSentEvents(lastEventID: [], reconnectionTime: nil), .timer(lastTick: .max),
      .peer(lastID: .max),
    ]
  }

  @Test func aPositionSurvivesARoundTrip() throws {
    for position in positions {
      let checkpoint = try #require(position.checkpoint(fingerprint))
      #expect(SourcePosition(checkpoint, fingerprint) == position)
    }
    let long = FieldValue([UInt8](repeating: 0xE9, count: Validators.limit))
    let longest = SourcePosition.poll(BodyDigest(value: 1), entityTag: long, lastModified: long)
    #expect(longest.checkpoint(fingerprint).flatMap { SourcePosition($0, fingerprint) } == longest)
    let longestID = [UInt8](repeating: 0xE9, count: ServerSentEventSplitter.longestID)
    let furthest = SourcePosition.serverSentEvents(lastEventID: longestID, reconnectionTime: .seconds(3))
    // With the digest of `distinct`.
    let stored = PipelineCheckpoint(key: BodyDigest(value: 2), source: furthest.checkpoint(fingerprint))
    let read = PipelineCheckpoint(stored.checkpoint)
    #expect(read == stored && read.source.flatMap { SourcePosition($0, fingerprint) } == furthest)
  }

  @Test func foreignOrDamagedBytesAreNoPosition() throws {
    for position in positions {
      let checkpoint = try #require(position.checkpoint(fingerprint))
      #expect(SourcePosition(checkpoint, BodyDigest(value: 1)) == nil)
      for count in 0..<checkpoint.bytes.count {
        #expect(SourcePosition(try #require(Checkpoint(Array(checkpoint.bytes[..<count]))), fingerprint) == nil)
      }
      #expect(SourcePosition(try #require(Checkpoint(checkpoint.bytes + [0])), fingerprint) == nil)
      // No changed bit traps.
      for bit in 0..<checkpoint.bytes.count * 8 {
        var bytes = checkpoint.bytes
        bytes[bit / 8] ^= 1 << (bit % 8)
        if case .poll(_, let tag, _, _)? = SourcePosition(try #require(Checkpoint(bytes)), fingerprint) {
          #expect(tag?.bytes.contains { $0 == 0x0A || $0 == 0x0D } != true)
        }
      }
    }
  }

  @Test func aPositionDependsOnTheRequestAndNotOnSecrets() {
    func fingerprint(_ more: [String] = ["poll"], _ change: (inout HTTPConfiguration) -> Void = { _ in }) -> BodyDigest
    {
      var configuration = HTTPConfiguration(url: "http://h/", query: [HTTPQueryItem(name: "key", value: "a")])
      change(&configuration)
      return configuration.fingerprint(more)
    }
    #expect(fingerprint() == fingerprint { $0.query = [HTTPQueryItem(name: "key", value: "b")] })
    #expect(fingerprint() == fingerprint { $0.bearer = "token" })
    #expect(fingerprint() != fingerprint { $0.url = "http://h/2" })
    #expect(fingerprint() != fingerprint { $0.unixSocket = "/run/s" })
    #expect(fingerprint() != fingerprint { $0.query = [] })
    #expect(fingerprint() != fingerprint(["sse"]))
  }

  /// A substitute for the stream's log: records batches.
  private final class Kept: Sendable {
    let checkpoint = Locked<Checkpoint?>(nil)
    func resume(_ context: inout SourceContext) {
      context.checkpoint = { [self] _ in checkpoint.withLock { $0 } }
    }
    func keep(_ batch: EventBatch) {
      if let new = batch.checkpoint { checkpoint.withLock { $0 = new } }
    }
  }

  @Test func serverSentEventsResumeAfterTheLastStoredEvent() async throws {
    let kept = Kept()
    for round in 0..<3 {
      try await withSourceThread { thread in
        let taker = Taker(.max(1))
        let stream = HTTPStream(
          HTTPConfiguration(url: upstream.url("/stream/\(key)?body=\(Upstream.escaped("id: n%n\ndata: %n\n\n"))")),
          format: .serverSentEvents
        ).source(on: thread, with: kept.resume)
        stream.map { batch in
          kept.keep(batch)
          return batch
        }.subscribe(taker)
        #expect(await taker.next(1) == ["\(round + 1)"])
        let headers = try await thread.lastHeaders(key, at: upstream)
        #expect(headers["last-event-id"] == (round == 0 ? nil : "n\(round)"))
        taker.cancel()
      }
    }
  }

  @Test func anEventIDOfEightKiBIsSentByTheNextProcess() async throws {
    let kept = Kept()
    let id = String(repeating: "x", count: ServerSentEventSplitter.longestID - 1)
    for round in 0..<2 {
      try await withSourceThread { thread in
        let taker = Taker(.max(1))
        let body = Upstream.escaped("id: %n\(id)\ndata: %n\n\n")
        let stream = HTTPStream(
          HTTPConfiguration(url: upstream.url("/stream/\(key)?body=\(body)")),
          format: .serverSentEvents
        ).source(on: thread, report: { Issue.record("\($0)") }, with: kept.resume)
        stream.map { batch in
          kept.keep(batch)
          return batch
        }.subscribe(taker)
        #expect(await taker.next(1) == ["\(round + 1)"])
        let headers = try await thread.lastHeaders(key, at: upstream)
        #expect(headers["last-event-id"] == (round == 0 ? nil : "1\(id)"))
        taker.cancel()
      }
    }
  }

  @Test(arguments: ["", "?tag=1"]) func aStoredPageIsNoEventForTheNextProcess(query: String) async throws {
    let kept = Kept()
    for round in 0..<2 {
      try await withSourceThread { thread in
        let taker = Taker(.unlimited)
        let configuration = HTTPConfiguration(url: upstream.url("/page/\(key)\(query)"))
        HTTPPoll(configuration, every: .milliseconds(1)).source(on: thread, with: kept.resume)
          .map { batch in
            kept.keep(batch)
            return batch
          }.subscribe(taker)
        if round == 0 { #expect(await taker.next(1) == ["page"]) }
        let before = try #require(try await thread.seen(key, at: upstream))
        while try #require(try await thread.seen(key, at: upstream)) < before + 3 {}
        #expect(taker.count == (round == 0 ? 1 : 0))
        if !query.isEmpty {
          let headers = try await thread.lastHeaders(key, at: upstream)
          #expect(headers["if-none-match"] == "\"page\"")
        }
        taker.cancel()
      }
    }
  }

  // MARK: Through the pipeline

  private func batch(_ events: [String], _ position: UInt8?) -> EventBatch {
    var batch = EventBatch(events.map { Array($0.utf8) })
    batch.checkpoint = position.flatMap { Checkpoint([$0]) }
    return batch
  }

  @Test func aBatchThatJQEmptiesPassesItsPositionAtOnce() {
    var machine = JQMachine()
    machine.request(.unlimited)
    _ = machine.next(at: .zero)
    machine.receive(batch(["a", "b"], 1))
    _ = machine.next(at: .zero)
    machine.answered([])
    #expect(machine.next(at: .zero) == nil)
    machine.answered([])
    #expect(machine.next(at: .zero) == .deliver(batch([], 1)))
    #expect(machine.next(at: .zero) == .ask)
    var lost = batch([], 2)
    lost.loss = .known(3)
    machine.receive(lost)
    #expect(machine.next(at: .zero) == .deliver(lost))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(batch(["c"], nil))
    _ = machine.next(at: .zero)
    machine.answered([])
    #expect(machine.next(at: .zero) == .ask, "there is nothing to pass on")
    machine.retract()
    machine.receive(batch([], 3))
    #expect(machine.next(at: .zero) == nil)
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .deliver(batch([], 3)))
  }

  @Test func aBatchThatJQEmptiesMayPassItsPositionToTheNextEvent() {
    var machine = JQMachine(keepsPosition: true)
    machine.request(.unlimited)
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(batch(["a", "b"], 1))
    #expect(machine.next(at: .zero) == .begin(batch(["a", "b"], 1)))
    machine.answered([])
    machine.answered([])
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(batch(["c", "d"], 2))
    _ = machine.next(at: .zero)
    // A part of a batch is incomplete.
    machine.answered(EventBatch([[UInt8](repeating: 0, count: JQMachine.pieceBytes)]))
    guard case .deliver(let piece)? = machine.next(at: .zero) else {
      Issue.record("no piece")
      return
    }
    #expect(piece.checkpoint?.bytes == [1])
    machine.answered(batch(["D"], nil))
    #expect(machine.next(at: .zero) == .deliver(batch(["D"], 2)))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(batch([], 3))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(batch(["e"], nil))
    _ = machine.next(at: .zero)
    machine.answered(batch(["E"], nil))
    #expect(machine.next(at: .zero) == .deliver(batch(["E"], 3)))
  }

  @Test func aBatchThatDistinctEmptiesPassesItsPositionAtOnce() {
    let memory = DistinctMemory()
    #expect(memory.carry(batch([], 2)) == batch([], 2))
    #expect(memory.carry(batch([], nil)) == nil)
    #expect(memory.carry(batch(["b"], nil)) == batch(["b"], nil))
  }

  @Test func aPositionWithoutAnEventKeepsTheDigestOfTheLastOne() throws {
    let stored = PipelineCheckpoint(key: BodyDigest(Array("a".utf8)), source: Checkpoint([1])).checkpoint
    let memory = DistinctMemory(SourceResumption { stored })
    memory.resume()
    #expect(PipelineCheckpoint(memory.carry(batch([], 2))?.checkpoint).key == BodyDigest(Array("a".utf8)))
    #expect(!memory.admits(Array("a".utf8)) && memory.admits(Array("b".utf8)))
    #expect(PipelineCheckpoint(memory.carry(batch([], 3))?.checkpoint).key == BodyDigest(Array("b".utf8)))
  }

  @Test func aBatchThatDistinctEmptiesMayPassItsPositionToTheNextEvent() {
    let memory = DistinctMemory(keepsPosition: true)
    #expect(memory.carry(batch(["a"], 1)) == batch(["a"], 1))
    #expect(memory.carry(batch([], 2)) == nil)
    #expect(memory.carry(batch(["b"], nil)) == batch(["b"], 2))
    #expect(memory.carry(batch(["c"], nil)) == batch(["c"], nil))
  }

  @Test func throttlePassesThePositionOfTheDeliveredEvent() {
    var machine = ThrottleMachine(interval: .seconds(1))
    machine.request(.unlimited)
    machine.receive(batch(["a", "b"], 1))
    #expect(machine.next(at: .seconds(5)) == .deliver(batch(["b"], 1)))
    machine.receive(batch(["c"], 2))
    machine.receive(batch(["d"], nil))
    #expect(machine.next(at: .seconds(6)) == .deliver(batch(["d"], 2)))
  }

  @Test func throttlePassesAPositionAloneWhileItHoldsNoEvent() {
    var machine = ThrottleMachine(interval: .seconds(1))
    machine.request(.unlimited)
    machine.receive(batch(["a"], 1))
    #expect(machine.next(at: .seconds(5)) == .deliver(batch(["a"], 1)))
    machine.receive(batch([], 2))
    #expect(machine.next(at: .seconds(5)) == .deliver(batch([], 2)))
    machine.receive(batch(["b"], 3))
    var lost = batch([], 4)
    lost.loss = .unknown
    machine.receive(lost)
    #expect(machine.next(at: .seconds(5)) == .begin(.seconds(6)))
    #expect(machine.next(at: .seconds(5)) == .ask)
    var held = batch(["b"], 4)
    held.loss = .unknown
    #expect(machine.next(at: .seconds(6)) == .deliver(held))
  }
}
