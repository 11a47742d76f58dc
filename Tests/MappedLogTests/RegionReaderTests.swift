import CLinux
import Glibc
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import MappedLog

/// The reader of the Swift client.
@Suite(.timeLimit(.minutes(10))) struct RegionReaderTests {
  private func makeReader(
    _ region: MapRegion, page: WaitingPage? = nil, maximumEventBytes: Int = 1 << 20
  ) throws -> RegionReader {
    try RegionReader(
      region: region.descriptor, page: page?.descriptor, byteCount: UInt64(region.byteCount),
      generation: region.generation, maximumEventBytes: maximumEventBytes)
  }

  private func ids(_ reader: RegionReader) -> [UInt64] {
    (0..<reader.copiedCount).map { reader.copied($0).id }
  }

  @Test func eventsSideBySideShareACopy() throws {
    let region = try makeRegion(events: 10, bytes: 4096)
    let reader = try makeReader(region)
    #expect(try reader.copy(from: 100, atMost: 9) == .nothing && reader.state == .live)
    Records.publish([3, 0, 5], to: region)
    #expect(try reader.copy(from: 100, atMost: 2) == .events && ids(reader) == [100, 101])
    let event = reader.copied(0)
    #expect(event.time == 1000 && event.data == Records.data(100, count: 3))
    #expect(try reader.copy(from: 102, atMost: .max) == .events && ids(reader) == [102])
    Records.publish(Array(repeating: 1, count: 20), to: region)
    #expect(try reader.copy(from: 103, atMost: 9) == .overtaken(first: region.first, end: 123))
    #expect(try reader.copy(from: 123, atMost: 9) == .nothing)
    region.end(as: .replaced)
    #expect(reader.state == .replaced && reader.epoch == 3)
  }

  /// Over the end of the ring, with events of any size.
  @Test(arguments: [(2, 4096), (100, 65536), (100, 1 << 20)])
  func everyEventIsReadWhole(events: Int, bytes: Int) throws {
    var random = SeededGenerator(7)
    let region = try makeRegion(events: events, bytes: bytes)
    let reader = try makeReader(region)
    var position = UInt64(100)
    for _ in 0..<300 {
      let sizes = (0..<Int.random(in: 1...2, using: &random)).map { _ in
        Int.random(in: 0...(bytes / 2 - 24), using: &random)
      }
      Records.publish(sizes, to: region)
      while try reader.copy(from: position, atMost: .random(in: 1...9, using: &random)) == .events {
        for index in 0..<reader.copiedCount {
          let (id, time, data) = reader.copied(index)
          #expect(id == position && time == id * 10 && data == Records.data(id, count: data.count))
          position += 1
        }
      }
      position = region.end
    }
  }

  /// Beside a writer at full speed.
  @Test(arguments: [(16, 4096), (4096, 1 << 20)]) func noReadIsTorn(events: Int, bytes: Int)
    async throws
  {
    let region = try makeRegion(events: events, bytes: bytes)
    let reader = try makeReader(region)
    let last = UInt64(100_000)
    // On a thread of its own: this one keeps its thread of the pool.
    try BackgroundThread.start(name: "writer") {
      while region.end < last {
        let count = min(1 + region.end % 7, last - region.end)
        Records.publish((0..<count).map { Int((region.end + $0) % 90) }, to: region)
      }
      region.end(as: .ended)
    }
    var position = UInt64(100)
    while position < last {
      switch try reader.copy(from: position, atMost: 64) {
      case .events:
        for index in 0..<reader.copiedCount {
          let (id, time, data) = reader.copied(index)
          let isWhole =
            id == position && time == id * 10 && data == Records.data(id, count: Int(id % 90))
          if !isWhole { Issue.record("torn: \(id) at \(position), \(data)") }
          position += 1
        }
      case .overtaken(let first, _): position = first
      case .nothing, .again: sched_yield()
      }
    }
    while reader.state == .live { sched_yield() }
    #expect(reader.state == .ended)
  }

  @Test func aWaitEndsWithAnEventOrAWakeUp() throws {
    let region = try makeRegion(events: 16, bytes: 4096)
    let page = try WaitingPage(name: "test")
    let reader = try makeReader(region, page: page)
    let readPosition = ReadPosition()
    let start = EventLoop.monotonicNow()
    try BackgroundThread.start(name: "writer") {
      for position in 100..<300 as Range<UInt64> {
        while readPosition.value.load(ordering: .acquiring) < position { sched_yield() }
        Records.publish([1], to: region)
        region.wake([page], wakesAlways: false)
      }
    }
    for position in 100..<300 as Range<UInt64> {
      // Longer than any event is late: a reader that is not woken sleeps until then.
      while reader.end == position { reader.wait(at: position, milliseconds: 60_000) }
      readPosition.value.store(position + 1, ordering: .releasing)
    }
    #expect(EventLoop.monotonicNow() - start < 55_000_000_000)
  }

  // MARK: Hostile memory

  @Test func whatIsNoRegionIsRefused() throws {
    let region = try makeRegion(events: 16, bytes: 4096)
    let size = UInt64(region.byteCount)
    func refusal(_ descriptor: CInt, page: CInt? = nil, size: UInt64, generation: UInt64 = 7)
      -> String?
    {
      do throws(RegionReader.Damage) {
        _ = try RegionReader(
          region: descriptor, page: page, byteCount: size, generation: generation, maximumEventBytes: 64)
        return nil
      } catch { return error.sentence }
    }
    #expect(refusal(region.descriptor, size: size) == nil)
    #expect(
      refusal(region.descriptor, size: size - 1)
        == "the size of the region is not that of the reply")
    #expect(
      refusal(region.descriptor, size: size, generation: 8)
        == "the header of the region is not that of the reply")
    let growing = OwnedDescriptor(memfd_create("growing", MFD_CLOEXEC | MFD_ALLOW_SEALING))
    ftruncate(growing.raw, 65536)
    #expect(refusal(growing.raw, size: 65536) == "a descriptor of the map is not sealed")
    #expect(
      refusal(region.descriptor, page: growing.raw, size: size)
        == "a descriptor of the map is not sealed")
    // The seals that forbid another size may themselves not change.
    #expect(fcntl(growing.raw, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    #expect(refusal(growing.raw, size: 65536) == "a descriptor of the map is not sealed")
    // Its readers would not be woken.
    #expect(refusal(region.descriptor, page: region.descriptor, size: size) == "the waiting page cannot be mapped")
    let pipe = try Pipe()
    #expect(refusal(pipe.reading.raw, size: 65536) == "a descriptor of the map is no memory")
    let zeros = try SealedMemory(name: "zeros", byteCount: 65536)
    #expect(refusal(zeros.descriptor.raw, size: 65536) == "the region is no mapped stream")
  }

  /// Any content costs the reader its map, and no more.
  @Test func noContentMakesAnAccessOutsideOfTheRegion() throws {
    var random = SeededGenerator(3)
    for _ in 0..<2000 {
      let region = try makeRegion(events: 16, bytes: 4096)
      Records.publish((0..<20).map { _ in Int.random(in: 0...300, using: &random) }, to: region)
      let memory = try SealedMemory(adopting: OwnedDescriptor(dup(region.memory.descriptor.raw)))
      let reader = try makeReader(region)
      for _ in 0..<4 {
        // The words of the header that change, the index, or the ring.
        let offset = [
          MapLayout.Offset.first, MapLayout.Offset.end,
          4096 + 8 * Int.random(in: 0..<16, using: &random),
          4096 + 128 + 8 * Int.random(in: 0..<512, using: &random),
        ].randomElement(using: &random)!
        let word =
          Bool.random(using: &random)
          ? UInt64.random(in: 0...200, using: &random) : .random(in: 0 ... .max, using: &random)
        memory.bytes.storeBytes(of: word, toByteOffset: offset, as: UInt64.self)
      }
      for position in region.first...region.end {
        guard case .events? = try? reader.copy(from: position, atMost: 9) else { continue }
        for index in 0..<reader.copiedCount { _ = reader.copied(index) }
      }
    }
  }

  /// So that the position of the region's end stays within its ring.
  @Test func anEventOverTheLimitEndsTheReadingWhereverItsCopyBegins() throws {
    let region = try makeRegion(events: 10, bytes: 4096)
    Records.publish([50, 50, 200, 50], to: region)
    let reader = try makeReader(region, maximumEventBytes: 100)
    for most in 1...4 {
      #expect(try reader.copy(from: 101, atMost: most) == .events && ids(reader) == [101])
      let damage = #expect(throws: RegionReader.Damage.self) { try reader.copy(from: 102, atMost: most) }
      #expect(damage?.isTooLarge == true && damage?.sentence == "an event has more than 100 bytes")
    }
    #expect(try reader.copy(from: 103, atMost: 9) == .events && ids(reader) == [103])
  }

  @Test func aLargeSizeIsDamage() throws {
    let region = try makeRegion(events: 16, bytes: 4096)
    Records.publish([8], to: region)
    let memory = try SealedMemory(adopting: OwnedDescriptor(dup(region.memory.descriptor.raw)))
    let ring = Int(memory.bytes.load(fromByteOffset: MapLayout.Offset.ringOffset, as: UInt64.self))
    for size in [4096 - 23, 1 << 20, .max] as [UInt32] {
      memory.bytes.storeBytes(of: size, toByteOffset: ring, as: UInt32.self)
      #expect(throws: RegionReader.Damage.self) {
        try makeReader(region).copy(from: 100, atMost: 1)
      }
    }
    memory.bytes.storeBytes(of: 4096 - 24, toByteOffset: ring, as: UInt32.self)
    #expect(try makeReader(region).copy(from: 100, atMost: 1) == .events)
    #expect(try makeReader(region, maximumEventBytes: 4096 - 24).copy(from: 100, atMost: 1) == .events)
    #expect(throws: RegionReader.Damage.self) {
      try makeReader(region, maximumEventBytes: 4096 - 25).copy(from: 100, atMost: 1)
    }
  }
}

private final class ReadPosition: Sendable {
  let value = Atomic<UInt64>(100)
}
