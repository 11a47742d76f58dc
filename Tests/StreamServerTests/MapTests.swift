import CLinux
import Events
import FoundationEssentials
import Glibc
import MappedLog
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import StreamServer

/// What a client gets in reply to its request for a map, and its own mapping of the region.
final class ClientMap {
  let generation, size, position: UInt64
  let missed: UInt64?
  /// Those of the region and of the waiting page.
  let descriptors: [CInt]
  private let memory: UnsafeRawPointer

  private struct Reply: Decodable {
    let version, generation, size, position: UInt64
    let missed: UInt64?
  }

  init(_ json: [UInt8], _ descriptors: [CInt]) throws {
    let reply = try JSONDecoder().decode(Reply.self, from: Data(json))
    #expect(reply.version == 1)
    (generation, size, position, missed) = (reply.generation, reply.size, reply.position, reply.missed)
    self.descriptors = descriptors
    memory = UnsafeRawPointer(mmap(nil, Int(size), PROT_READ, MAP_SHARED, descriptors[0], 0)!)
    #expect(memory.load(fromByteOffset: MapLayout.Offset.generation, as: UInt64.self) == generation)
  }

  deinit {
    munmap(UnsafeMutableRawPointer(mutating: memory), Int(size))
    for descriptor in descriptors { close(descriptor) }
  }

  private func word(_ offset: Int) -> UInt64 {
    (memory + offset).assumingMemoryBound(to: Atomic<UInt64>.self).pointee.load(ordering: .acquiring)
  }

  var epoch: UInt64 { word(MapLayout.Offset.epoch) }
  var first: UInt64 { word(MapLayout.Offset.first) }
  var end: UInt64 { word(MapLayout.Offset.end) }
  var state: MapState {
    let state = (memory + MapLayout.Offset.state).assumingMemoryBound(to: Atomic<UInt32>.self)
    return MapState(rawValue: state.pointee.load(ordering: .acquiring))!
  }

  /// The ids and data of the events from a position on; nothing is appended meanwhile.
  func events(from position: UInt64? = nil) -> [(id: UInt64, data: [UInt8])] {
    let slots = word(MapLayout.Offset.slots)
    return (max(position ?? self.position, first)..<end).map { position in
      let o = word(Int(word(MapLayout.Offset.indexOffset) + 8 * (position & (slots - 1))))
      let record = memory + Int(word(MapLayout.Offset.ringOffset) + o)
      let size = Int(record.load(as: UInt32.self))
      return (
        record.load(fromByteOffset: 8, as: UInt64.self),
        Array(UnsafeRawBufferPointer(start: record + MapLayout.recordHeaderBytes, count: size))
      )
    }
  }

  var data: [[UInt8]] { events().map(\.data) }
}

extension WireClient {
  /// Requests a map, and takes it.
  func map(_ name: String, options: String = #"{"map":true}"#, id: UInt32 = 1) throws -> ClientMap {
    let former = descriptors.count
    get(name, options: options, id: id)
    guard case .payload(StreamID(id), let payload, false, true, true)? = try receive(), payload.metadata == nil else {
      Issue.record("no map came")
      throw Silence()
    }
    return try ClientMap(payload.data, Array(descriptors[former...]))
  }
}

private let demandOfMap = #"{"map":true,"position":"#

@Suite struct MapTests {
  private func withMappedStream(
    _ change: (inout StreamConfiguration) -> Void = { _ in },
    _ body: (ServerHarness, HandFedSource) async throws -> Void
  ) async throws {
    try await withServer { harness in
      try await body(
        harness,
        try harness.add("s") {
          $0.isMapped = true
          change(&$0)
        })
    }
  }

  private func changed(
    _ harness: ServerHarness, makeLog: ((EventLog) throws -> EventLog)? = nil,
    _ change: (inout StreamConfiguration) -> Void
  ) {
    var configuration = StreamConfiguration(name: "s", start: .always)
    configuration.isMapped = true
    change(&configuration)
    _ = harness.server.change([StreamChange(configuration, makeLog: makeLog)], removing: [])
  }

  @Test func aClientReadsEventsInSharedMemory() async throws {
    try await withMappedStream { harness, source in
      source.send([1], [2, 2])
      let client = try WireClient.ready(harness.path)
      let map = try client.map("s")
      #expect(map.descriptors.count == 2 && map.state == .live)
      var status = stat()
      #expect(fstat(map.descriptors[0], &status) == 0 && UInt64(status.st_size) == map.size)
      #expect(status.st_mode & 0o777 == 0o600)
      #expect(map.data == [[2, 2]] && map.position == map.end - 1)  // the default of `replay` is 1
      source.send([3])
      #expect(map.data == [[2, 2], [3]])
      #expect(map.events().map(\.id) == Array(map.position..<map.end))
      // A second connection of the user has the same page; the region is one for all.
      let other = try WireClient.ready(harness.path).map("s", options: #"{"map":true,"from":-10,"on_lag":"latest"}"#)
      #expect(other.data == [[1], [2, 2], [3]] && other.generation == map.generation)
      var statuses = [stat(), stat()]
      #expect(fstat(map.descriptors[1], &statuses[0]) == 0 && fstat(other.descriptors[1], &statuses[1]) == 0)
      #expect(statuses[0].st_ino == statuses[1].st_ino)
      let own = try WireClient.ready(harness.path)
      own.subscribe("s", credit: 1)
      #expect(try own.event().data == [3])
    }
  }

  @Test(arguments: [1, 3]) func everyEventOfABatchThatIsLargerThanTheBufferIsPublished(events: Int) async throws {
    try await withMappedStream({ $0.limits = .init(events: events, bytes: 4096) }) { harness, source in
      let map = try WireClient.ready(harness.path).map("s")
      source.send(batch: (0..<20).map { [UInt8($0)] })
      #expect(map.end == map.position + 20 && map.state == .live)
      #expect(map.data == ((20 - events)..<20).map { [UInt8($0)] })
      // Events as large as the buffer.
      source.send(batch: (0..<3).map { [UInt8](repeating: UInt8($0), count: 4096 - 24) })
      #expect(map.data == [[UInt8](repeating: 2, count: 4096 - 24)] && map.end == map.position + 23)
    }
  }

  @Test func theReplySaysWhereToBeginAndWhatIsLost() async throws {
    try await withMappedStream({ $0.limits = .init(events: 4, bytes: 4096) }) { harness, source in
      source.send(batch: (0..<10).map { [$0] })
      let client = try WireClient.ready(harness.path)
      let all = try client.map("s", options: #"{"map":true,"from":-100}"#)
      #expect(all.position == all.end - 4 && all.missed == 0)
      let resumed = try client.map("s", options: #"{"map":true,"from":\#(all.end - 7)}"#)
      #expect(resumed.position == all.end - 4 && resumed.missed == 2)
      let newest = try client.map("s", options: #"{"map":true,"from":"new"}"#)
      #expect(newest.position == all.end && newest.missed == 0)
      let unknown = try client.map("s", options: #"{"map":true,"from":1}"#)
      #expect(unknown.position == all.end - 4 && unknown.missed == nil)
    }
  }

  // MARK: Refusals

  @Test func refusalsHaveTheirSentences() async throws {
    try await withMappedStream({ _ in }) { harness, source in
      _ = try harness.add("other")
      let client = try WireClient.ready(harness.path)
      func refused(_ name: String, _ options: String, isStream: Bool = false) throws -> String? {
        if isStream { client.subscribe(name, credit: 1, options: options) } else { client.get(name, options: options) }
        guard case .error(StreamID(1), let code, let sentence)? = try client.receive() else { return nil }
        return "\(code) \(sentence)"
      }
      let map = #"{"map":true}"#
      let rejected = "\(RSocket.ErrorCode.rejected)"
      let invalid = "\(RSocket.ErrorCode.invalid)"
      #expect(try refused("none", map) == #"\#(rejected) no stream named "none""#)
      _ = try harness.add("notes") { $0.source = "publish" }
      #expect(
        try refused("notes", map) == #"\#(invalid) without map = true in the configuration, "notes" is not mapped"#)
      for isStream in [false, true] {
        let options = isStream ? demandOfMap + "1}" : map
        #expect(try refused("other", options, isStream: isStream) == #"\#(invalid) "other" is not mapped"#)
        #expect(try refused("$streams", options, isStream: isStream) == #"\#(invalid) "$streams" is not mapped"#)
      }
      for (option, sentence) in [
        (#""where":{"/a":1}"#, #"option "where" is not for maps"#),
        (#""marker":true"#, #"option "marker" is not for maps"#),
        (#""from":"state""#, #"option "from" must not be "state" for maps"#),
        (#""key":"a""#, #"option "key" is not for maps"#), (#""ids":false"#, #"option "ids" is not for maps"#),
        (#""position":5"#, #"option "position" is for the demand of a map, which is a stream"#),
        (#""from":99999999999999999"#, "no event has the id 99999999999999999 yet"),
      ] { #expect(try refused("s", #"{"map":true,\#(option)}"#) == "\(invalid) \(sentence)") }
      for (options, sentence) in [
        (map, #"the demand of a map requires the option "position""#),
        (demandOfMap + #"1,"from":"new"}"#, #"the demand of a map has only the option "position""#),
        (demandOfMap + "99999999999999999}", "no event has the position 99999999999999999 yet"),
        (#"{"position":1}"#, #"option "position" requires "map""#),
        (demandOfMap + "-1}", #"option "position" must be a position of a map"#),
      ] { #expect(try refused("s", options, isStream: true) == "\(invalid) \(sentence)") }
      #expect(client.descriptors.isEmpty)
      let remote = try WireClient(harness.server, user: nil)
      remote.get("s", options: map)
      #expect(try remote.receive() == .error(StreamID(1), .invalid, #""s" cannot be mapped over TCP"#))
      let web = try WebSocketClient(harness)
      web.send(.setup(Setup()))
      let payload = Payload(metadata: [1] + Array("s".utf8), data: Array(map.utf8))
      web.send(.request(StreamID(1), .response, initialRequest: 1, payload, follows: false, isComplete: false))
      #expect(try web.frame() == .error(StreamID(1), .invalid, #""s" cannot be mapped over a WebSocket"#))
    }
  }

  @Test func aClientWithoutAccessGetsNoMap() async throws {
    try await withMappedStream({ $0.read = AccessRules([.user(4242)]) }) { harness, _ in
      let client = try WireClient(harness.server, user: 1000)
      client.get("s", options: #"{"map":true}"#)
      #expect(try client.receive() == .error(StreamID(1), .rejected, #"uid 1000 may not read "s""#))
      #expect(try WireClient(harness.server, user: 4242).map("s").state == .live)
    }
  }

  // MARK: Demand

  @Test func theCreditOfAMapIsDemandUpstream() async throws {
    try await withServer { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero)) { $0.isMapped = true }
      let client = try WireClient.ready(harness.path)
      let map = try client.map("s")
      #expect(!source.isSubscribed)  // a map alone asks for nothing
      client.subscribe("s", credit: 2, options: demandOfMap + "\(map.position)}", id: 3)
      harness.eventually { source.demand == .max(1) }
      source.send([1])
      harness.eventually { source.demand == .max(1) }
      source.send([2])
      #expect(try client.isSilent())  // no event comes over the socket
      #expect(source.demand == .none && map.data == [[1], [2]])
      client.send(.requestN(StreamID(3), 2))
      harness.eventually { source.demand == .max(1) }
      #expect(harness.server.statistics.subscribers == 1)
      client.send(.cancel(StreamID(3)))
      harness.eventually { !source.isSubscribed }
    }
  }

  @Test func theLagOfAMapIsWhatWasNotGrantedAgain() async throws {
    try await withMappedStream { harness, source in
      func lag() async -> UInt64? {
        harness.server.measureLag()
        for worker in harness.server.workers {
          await withCheckedContinuation { continuation in
            worker.loop.execute {
              worker.measureLag()
              continuation.resume()
            }
          }
        }
        return harness.server.statistics.byStream.first?.lag
      }
      let client = try WireClient.ready(harness.path)
      let map = try client.map("s")
      client.subscribe("s", credit: 10, options: demandOfMap + "\(map.position)}", id: 3)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: (0..<8).map { [$0] })
      #expect(await lag() == 8)
      client.send(.requestN(StreamID(3), 5))
      #expect(try client.isSilent())
      #expect(await lag() == 3)
      client.send(.requestN(StreamID(3), 0x7FFF_FFFF))
      #expect(try client.isSilent())
      #expect(await lag() == 0)  // what it has read is unknown
    }
  }

  @Test(arguments: [Subscribers.Completion<StreamFailure>.finished, .failure(StreamFailure("it broke"))])
  func theStreamsEndIsThatOfTheMap(completion: Subscribers.Completion<StreamFailure>) async throws {
    try await withMappedStream { harness, source in
      let client = try WireClient.ready(harness.path)
      let map = try client.map("s")
      client.subscribe("s", credit: 1, options: demandOfMap + "\(map.position)}", id: 3)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([1])
      source.finish(completion)
      harness.eventually { map.state == .ended }
      #expect(map.data == [[1]])
      let end = try client.receive()
      if completion == .finished {
        #expect(end == .payload(StreamID(3), Payload(), follows: false, isComplete: true, isNext: false))
      } else {
        #expect(end == .error(StreamID(3), .applicationError, "it broke"))
      }
      // Later readers get what there is.
      let later = try client.map("s", id: 5)
      #expect(later.state == .ended && later.data == [[1]])
    }
  }

  // MARK: Generations

  @Test func aReloadOfAccessReplacesTheRegion() async throws {
    try await withMappedStream({ $0.read = AccessRules([.user(1000), .user(2000)]) }) { harness, source in
      let clients = try [1000, 2000].map { try WireClient(harness.server, user: $0) }
      let maps = try clients.map { try $0.map("s") }
      for (client, map) in zip(clients, maps) {
        client.subscribe("s", credit: 9, options: demandOfMap + "\(map.position)}", id: 3)
      }
      harness.eventually { harness.server.statistics.subscribers == 2 }
      #expect(harness.server.statistics.byStream[0].mapReaders == 2)
      #expect(
        try #require(harness.server.streams["s"]).summary(showsNames: true).map
          == .init(
            generation: maps[0].generation, readers: 2))
      source.send([1])
      changed(harness) { $0.read = AccessRules([.user(2000)]) }
      source.send([2])
      for map in maps { #expect(map.state == .replaced && map.data == [[1]]) }
      #expect(try clients[0].receive() == .error(StreamID(3), .rejected, #"uid 1000 may not read "s""#))
      clients[0].get("s", options: #"{"map":true}"#, id: 5)
      #expect(try clients[0].receive() == .error(StreamID(5), .rejected, #"uid 1000 may not read "s""#))
      #expect(try clients[1].isSilent())
      let next = try clients[1].map("s", options: #"{"map":true,"from":\#(maps[1].end - 1)}"#, id: 5)
      #expect(next.generation > maps[1].generation && next.epoch == maps[1].epoch && next.position == maps[1].end)
      #expect(next.data == [[2]] && next.missed == 0)
    }
  }

  @Test func aReloadThatConcernsNoReaderKeepsTheRegion() async throws {
    try await withMappedStream { harness, source in
      let client = try WireClient.ready(harness.path)
      let map = try client.map("s")
      changed(harness) { $0.description = "another text" }
      source.send([1])
      #expect(map.state == .live && map.data == [[1]])
      #expect(try client.map("s").generation == map.generation)
    }
  }

  @Test func anotherBufferIsAnotherRegion() async throws {
    try await withMappedStream { harness, source in
      let client = try WireClient.ready(harness.path)
      let map = try client.map("s")
      source.send(batch: (0..<10).map { [$0] })
      changed(harness, makeLog: { try #require(EventLog(name: "s", limits: .init(events: 4), takingOver: $0)) }) {
        $0.limits = .init(events: 4)
      }
      source.send([10])
      #expect(map.state == .replaced && map.data.count == 10)
      let next = try client.map("s", options: #"{"map":true,"from":-9}"#)
      #expect(next.data == [[7], [8], [9], [10]] && next.epoch == map.epoch && next.end == map.end + 1)
    }
  }

  @Test func aMapEndsWithItsConfiguration() async throws {
    try await withMappedStream { harness, source in
      let client = try WireClient.ready(harness.path)
      let map = try client.map("s")
      client.subscribe("s", credit: 9, options: demandOfMap + "\(map.position)}", id: 3)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([1])
      changed(harness) { $0.isMapped = false }
      source.send([2])
      #expect(map.state == .replaced && map.data == [[1]])
      #expect(try client.receive() == .error(StreamID(3), .canceled, #""s" is not mapped any more"#))
      client.get("s", options: #"{"map":true}"#, id: 5)
      #expect(try client.receive() == .error(StreamID(5), .invalid, #""s" is not mapped"#))
      changed(harness) { _ in }
      let next = try client.map("s", options: #"{"map":true,"from":-9}"#, id: 7)
      #expect(next.data == [[1], [2]] && next.generation > map.generation)
      _ = harness.server.change([], removing: ["s"])
      #expect(next.state == .replaced)
    }
  }

  /// Positions have no gap: the events after a hole of the ids are those of another epoch.
  @Test func aHoleOfTheIDsBeginsAnotherEpoch() async throws {
    try await withMappedStream { harness, source in
      let client = try WireClient.ready(harness.path)
      source.send([1])
      let map = try client.map("s")
      var batch: EventBatch = [[7], [8]]
      #expect(batch.setStamps(try #require(EventStamps(firstID: map.end + 1000, time: 1))))
      #expect(harness.server.append(batch, to: "s"))
      #expect(map.state == .replaced && map.data == [[1]])
      let next = try client.map("s", options: #"{"map":true,"from":\#(map.end - 1)}"#)
      #expect(next.epoch != map.epoch && next.data == [[7], [8]] && next.missed == nil)
      #expect(next.first == map.end + 1000)
    }
  }

  /// As after a failure: the next request makes a region, while others append.
  @Test func aRegionIsMadeAgainWhileEventsCome() async throws {
    try await withMappedStream({ $0.limits = .init(events: 1 << 16, bytes: 16 << 20) }) { harness, source in
      let client = try WireClient.ready(harness.path)
      let stream = try #require(harness.server.streams["s"])
      source.send(batch: (0..<8000).map { [UInt8](repeating: UInt8(truncatingIfNeeded: $0), count: 1000) })
      var generation = try client.map("s").generation
      for round in 0..<5 {
        stream.endMap()
        let writing = Task.detached { for value in 0..<300 { source.send([UInt8(truncatingIfNeeded: value)]) } }
        let map = try client.map("s", options: #"{"map":true,"from":-100000}"#)
        await writing.value
        #expect(map.state == .live && map.generation > generation)
        let events = map.events()
        #expect(events.count == 8000 + 300 * (round + 1) && events.map(\.id) == Array(map.first..<map.end))
        #expect(events.prefix(8000).allSatisfy { $0.data.count == 1000 })
        #expect(events.suffix(300).map(\.data) == (0..<300).map { [UInt8(truncatingIfNeeded: $0)] })
        generation = map.generation
      }
    }
  }

  /// A clock that was set back lowers no generation.
  @Test func generationsRiseOverARestart() async throws {
    try await withTwoServers { first, next in
      _ = try first.add("s") { $0.isMapped = true }
      _ = try next.add("s") { $0.isMapped = true }
      let map = try WireClient.ready(next.path).map("s")
      var saved = try await first.handOver()
      let end = try #require(saved.ends["s"])
      #expect(try #require(end.mapGeneration) < map.generation)
      saved.ends["s"]?.mapGeneration = map.generation + 1_000_000_000_000
      await next.restore(saved)
      #expect(map.state == .replaced)
      #expect(try WireClient.ready(next.path).map("s").generation > map.generation + 1_000_000_000_000)
    }
  }

  @Test func aRestartReplacesTheRegion() async throws {
    try await withTwoServers { first, next in
      let source = try first.add("s") { $0.isMapped = true }
      let client = try WireClient.ready(first.path)
      let map = try client.map("s")
      client.subscribe("s", credit: 2, options: demandOfMap + "\(map.position)}", id: 3)
      first.eventually { first.server.statistics.subscribers == 1 }
      source.send([1])
      let later = try next.add("s", start: .whileSubscribed(linger: .seconds(300))) { $0.isMapped = true }
      try await first.handOver(to: next)
      #expect(map.state == .replaced && map.data == [[1]])
      next.eventually { later.isSubscribed }
      let after = try client.map("s", options: #"{"map":true,"from":\#(map.end - 1)}"#, id: 5)
      #expect(after.generation > map.generation && after.position >= map.end)
      later.send([2])
      #expect(after.data == [[2]])
      // Positions of the former log are below those of this one.
      client.send(.requestN(StreamID(3), 100))
      #expect(try client.isSilent())
      #expect(later.demand == .none)
      client.subscribe("s", credit: 100, options: demandOfMap + "\(after.position)}", id: 7)
      next.eventually { later.demand == .max(1) }
    }
  }
}

/// The descriptors of replies with maps.
@Suite struct MapDescriptorTests {
  private static let options = #"{"map":true}"#

  /// A client that requests maps and does not read gets as many as are free, and others when it has read them.
  @Test func aClientThatDoesNotReadGetsFewMaps() async throws {
    try await withServer { harness in
      _ = try harness.add("s") { $0.isMapped = true }
      let client = try WireClient.ready(harness.path)
      let ids = (0..<100).map { UInt32(2 * $0 + 1) }
      for id in ids { client.get("s", options: Self.options, id: id) }
      harness.eventually { harness.server.statistics.refused == 68 }
      // The limit is the user's, on every connection.
      let other = try WireClient.ready(harness.path)
      other.get("s", options: Self.options)
      let sentence = "uid \(geteuid()) has 32 maps that it has not received, with 32 of 64 left"
      #expect(try other.receive() == .error(StreamID(1), .rejected, sentence))
      for id in ids.prefix(32) {
        guard case .payload(StreamID(id), _, false, true, true)? = try client.receive() else {
          Issue.record("no map for \(id)")
          return
        }
      }
      for id in ids.dropFirst(32) { #expect(try client.receive() == .error(StreamID(id), .rejected, sentence)) }
      #expect(client.descriptors.count == 64)
      client.descriptors.forEach { close($0) }
      #expect(try other.map("s", id: 3).state == .live)
    }
  }

  /// A user's page goes with the last of its connections that have it, and another user can get one.
  @Test func aWaitingPageIsOfTheConnectionsThatHaveIt() async throws {
    try await withServer { harness in
      _ = try harness.add("s") { $0.isMapped = true }
      var clients = try (0..<16 as Range<UInt32>).map { try WireClient(harness.server, user: 1000 + $0) }
      for client in clients { #expect(try client.map("s").descriptors.count == 2) }
      let other = try WireClient(harness.server, user: 2000)
      #expect(try other.map("s").descriptors.count == 1)
      let first = clients.removeFirst()
      var second: WireClient? = try WireClient(harness.server, user: 1000)
      #expect(try second?.map("s").descriptors.count == 2)
      second = nil
      harness.eventually { harness.server.statistics.connections == 17 }
      #expect(try other.map("s").descriptors.count == 1)
      #expect(try first.map("s").descriptors.count == 2)
      clients.removeLast()
      harness.eventually { harness.server.statistics.connections == 16 }
      #expect(try other.map("s").descriptors.count == 2)
    }
  }

  /// Output that waits for the socket, then a map.
  private func withMapBehindEvents(
    _ harness: ServerHarness, _ body: (WireClient, HandFedSource) async throws -> Void
  ) async throws {
    harness.setWantsDetails(true)
    let source = try harness.add("s") {
      $0.isMapped = true
      $0.limits = .init(bytes: 4 << 20)
    }
    let client = try WireClient.ready(harness.path)
    client.subscribe("s", credit: 1)
    harness.eventually { harness.server.statistics.subscribers == 1 }
    source.send([UInt8](repeating: 7, count: 2 << 20))
    while await !harness.isBlocked() { usleep(1000) }
    client.get("s", options: Self.options, id: 3)
    harness.eventually {
      harness.reports.contains { if case .clientActs(_, _, let what) = $0 { what.hasPrefix("maps") } else { false } }
    }
    try await body(client, source)
  }

  /// The reply comes between the parts of the event that waits.
  @Test func descriptorsComeWithTheirReply() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      try await withMapBehindEvents(harness) { client, _ in
        while case .payload(let id, let payload, _, _, true)? = try client.receive() {
          guard id == StreamID(3) else { continue }
          let map = try ClientMap(payload.data, client.descriptors)
          #expect(map.descriptors.count == 2 && map.data.map(\.count) == [2 << 20])
          return
        }
        Issue.record("no map came")
      }
    }
  }

  /// The next process does not have the descriptors.
  @Test func aReplyThatARestartFindsUnsentBecomesAnError() async throws {
    try await withTwoServers(ServerLimits(workers: 1)) { first, next in
      _ = try next.add("s") {
        $0.isMapped = true
        $0.limits = .init(bytes: 4 << 20)
      }
      try await withMapBehindEvents(first) { client, _ in
        try await first.handOver(to: next)
        var errors: [Frame] = []
        while errors.count < 2, let frame = try client.receive() {
          if case .error = frame { errors.append(frame) }
        }
        #expect(errors.contains(.error(StreamID(3), .canceled, "streamd restarts")))
        #expect(client.descriptors.isEmpty)
        #expect(try client.map("s", id: 5).state == .live)
      }
    }
  }
}
