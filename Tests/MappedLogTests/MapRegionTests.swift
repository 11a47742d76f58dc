import CLinux
import CMapLayout
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import MappedLog

@Suite struct MapRegionTests {
  @Test func theLayoutIsThatOfTheHeader() {
    let fields: [(map_field, Int)] = [
      (MAP_MAGIC, MapLayout.Offset.magic), (MAP_VERSION, MapLayout.Offset.version),
      (MAP_HEADER_BYTES, MapLayout.Offset.headerBytes), (MAP_GENERATION, MapLayout.Offset.generation),
      (MAP_EPOCH, MapLayout.Offset.epoch), (MAP_REGION_BYTES, MapLayout.Offset.regionBytes),
      (MAP_SLOTS, MapLayout.Offset.slots), (MAP_INDEX_OFFSET, MapLayout.Offset.indexOffset),
      (MAP_RING_OFFSET, MapLayout.Offset.ringOffset), (MAP_RING_BYTES, MapLayout.Offset.ringBytes),
      (MAP_FIRST, MapLayout.Offset.first), (MAP_END, MapLayout.Offset.end), (MAP_WAKE, MapLayout.Offset.wake),
      (MAP_STATE, MapLayout.Offset.state), (MAP_RECORD_SIZE, MapLayout.RecordOffset.size),
      (MAP_RECORD_ID, MapLayout.RecordOffset.id), (MAP_RECORD_TIME, MapLayout.RecordOffset.time),
    ]
    for (field, offset) in fields { #expect(map_offset(field) == offset) }
    #expect(map_value(MAP_MAGIC_NUMBER) == MapLayout.magic)
    #expect(map_value(MAP_VERSION_NUMBER) == UInt64(MapLayout.version))
    #expect(map_value(MAP_BYTES_OF_HEADER) == UInt64(MapLayout.headerBytes))
    #expect(map_value(MAP_BYTES_OF_RECORD) == UInt64(MapLayout.recordHeaderBytes))
    for (constant, state) in [(MAP_LIVE, MapState.live), (MAP_REPLACED, .replaced), (MAP_ENDED, .ended)] {
      #expect(map_value(constant) == UInt64(state.rawValue))
    }
  }

  @Test func anEventIsReadWithItsIDTimeAndBytes() throws {
    let region = try makeRegion(events: 10, bytes: 4096)
    let reader = MapReader(region)
    #expect(reader.next() == .nothing(.live))
    Records.publish([3, 0], to: region)
    #expect(reader.next() == .event(.init(id: 100, time: 1000, data: Records.data(100, count: 3))))
    #expect(reader.next() == .event(.init(id: 101, time: 1010, data: [])))
    #expect(reader.next() == .nothing(.live))
    #expect((reader.generation, reader.epoch) == (7, 3))
    region.end(as: .ended)
    #expect(reader.next() == .nothing(.ended))
    Records.publish([1], to: region)  // without effect
    #expect(reader.next() == .nothing(.ended))
  }

  /// With 1 event, few of any size, events as large as the ring, and more in one batch than fit.
  @Test(arguments: [(1, 4096), (2, 4096), (7, 4096), (1000, 4096), (1000, 65536)])
  func aRegionHasTheNewestEventsWhateverTheirSizes(events: Int, bytes: Int) throws {
    for seed in seeds(5) {
      var random = SeededGenerator(seed)
      let region = try makeRegion(events: events, bytes: bytes)
      let follower = MapReader(region)
      var read = UInt64(100)
      for _ in 0..<40 {
        let largest = Bool.random(using: &random) ? bytes - 24 : [0, 50, 500].randomElement(using: &random)!
        let sizes = (0..<Int.random(in: 1...40, using: &random)).map { _ in Int.random(in: 0...largest, using: &random)
        }
        Records.publish(sizes, to: region)
        #expect(region.end - region.first <= UInt64(max(1, events).nextPowerOfTwo))
        #expect(region.end - region.first >= 1)
        // A batch of small events leaves as many as fit.
        let all = MapReader(region).readAll()
        #expect(all.damage == nil && all.missed == 0 && all.events.count == region.end - region.first)
        for event in all.events { #expect(event.data == Records.data(event.id, count: event.data.count)) }
        #expect(all.events.map(\.id) == Array(region.first..<region.end))
        for (event, size) in zip(all.events.reversed(), sizes.reversed()) { #expect(event.data.count == size) }
        guard Bool.random(using: &random) else { continue }
        let new = follower.readAll()
        #expect(new.damage == nil && read + new.missed + UInt64(new.events.count) == region.end)
        read = region.end
      }
    }
  }

  /// The region shows no event that its log has evicted.
  @Test func evictedEventsAreNotShown() throws {
    let region = try makeRegion(events: 10, bytes: 4096)
    Records.publish([1, 1, 1], to: region)
    region.publish(upTo: 103, keeping: 102) { _ in preconditionFailure("there is nothing to publish") }
    #expect(MapReader(region, from: 100).next() == .gap(2))
    region.publish(upTo: 103, keeping: 500) { _ in preconditionFailure("there is nothing to publish") }
    #expect(region.first == 103 && MapReader(region).next() == .nothing(.live))
    Records.publish([1], to: region, keeping: 100)
    #expect(MapReader(region).readAll().events.map(\.id) == [103])
  }

  @Test func aRegionIsFilledInParts() throws {
    let region = try makeRegion(events: 1000, bytes: 4 << 20)
    var partCount = 0
    while region.end < 200 {
      let former = region.end
      Records.publish(Array(repeating: 50_000, count: 200 - Int(former)), to: region, mostParts: 1)
      #expect(region.end - former == min(5, 200 - former))
      partCount += 1
    }
    #expect(partCount == 20 && MapReader(region).readAll().damage == nil)
  }

  @Test func anOvertakenReaderKnowsHowManyEventsItMissed() throws {
    let region = try makeRegion(events: 4, bytes: 4096)
    let reader = MapReader(region)
    Records.publish([1, 1, 1, 1, 1, 1], to: region)
    #expect(reader.next() == .gap(2))
    #expect(reader.readAll().events.map(\.id) == [102, 103, 104, 105])
  }

  // MARK: What a reader cannot do

  @Test func noReaderCanWriteOrResizeARegion() throws {
    let region = try makeRegion(events: 4, bytes: 4096)
    let reading = region.descriptor
    #expect(
      mmap(nil, region.byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, reading, 0) == MAP_FAILED && errno == EACCES)
    let mapped = mmap(nil, region.byteCount, PROT_READ, MAP_SHARED, reading, 0)!
    defer { munmap(mapped, region.byteCount) }
    #expect(mprotect(mapped, region.byteCount, PROT_READ | PROT_WRITE) != 0 && errno == EACCES)
    // Not even the daemon can: no access of a reader faults.
    for descriptor in [reading, region.memory.descriptor.raw] {
      #expect(ftruncate(descriptor, 0) != 0 && ftruncate(descriptor, 1 << 30) != 0)
    }
    #expect(fcntl(region.memory.descriptor.raw, F_ADD_SEALS, 8 /* F_SEAL_WRITE */) != 0 && errno == EPERM)
    let page = try WaitingPage(name: "test")
    #expect(ftruncate(page.descriptor, 0) != 0 && errno == EPERM)
    #expect(fcntl(page.descriptor, F_ADD_SEALS, 8 /* F_SEAL_WRITE */) != 0 && errno == EPERM)
  }

  /// - Returns: whether another user can open the descriptor's file for writing, and then has written.
  private func isWritable(byOthers descriptor: CInt) async throws -> Bool {
    let child = try ChildProcess(
      "setpriv",
      [
        "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "sh", "-c",
        "test -r /proc/self/fd/3 && printf written 1<>/proc/self/fd/3",
      ], passing: [descriptor])
    return await child.end() == 0
  }

  @Test(.enabled(if: geteuid() == 0, "only root can become another user"))
  func anotherUserCannotOpenARegionForWriting() async throws {
    let region = try makeRegion(events: 4, bytes: 4096)
    #expect(try await !isWritable(byOthers: region.descriptor))
    #expect(MapReader(region).next() == .nothing(.live))
    // The control: a memfd as memfd_create makes it.
    let control = OwnedDescriptor(memfd_create("control", MFD_CLOEXEC))
    ftruncate(control.raw, 4096)
    let reading = OwnedDescriptor(open("/proc/self/fd/\(control.raw)", O_RDONLY | O_CLOEXEC))
    #expect(try await isWritable(byOthers: reading.raw))
  }

  // MARK: Waking

  /// The threads of this process that sleep in FUTEX_WAIT on memory of several processes.
  private func sleepingReaders() throws -> Int {
    let folder = try #require(opendir("/proc/self/task"))
    defer { closedir(folder) }
    var count = 0
    while let entry = readdir(folder) {
      let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      guard let file = fopen("/proc/self/task/\(name)/syscall", "re") else { continue }
      defer { fclose(file) }
      var line = [CChar](repeating: 0, count: 256)
      guard fgets(&line, 256, file) != nil else { continue }
      let words = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).split(
        separator: " ")
      if words.count > 2, words[0] == "\(SYS_futex)", words[2] == "0x0" { count += 1 }
    }
    return count
  }

  /// A client may have any number of waiters on its map: a thread that publishes wakes none of them, and the waker a few in
  /// each turn.
  @Test func aPublisherWakesNoReaderItself() throws {
    let (busy, quiet) = (try makeRegion(events: 4, bytes: 4096), try makeRegion(events: 4, bytes: 4096))
    let waker = MapWaker()
    let woken = Locked(0)
    let count = 2 * MapWaker.turn + 10
    let readers = try (0..<count).map { _ in
      try RegionReader(
        region: busy.descriptor, page: nil, byteCount: UInt64(busy.byteCount), generation: busy.generation,
        maximumEventBytes: 64)
    }
    for reader in readers {
      try BackgroundThread.start(name: "reader") {
        reader.wait(at: 100, milliseconds: 60_000)
        woken.withLock { $0 += 1 }
      }
    }
    while try sleepingReaders() < count { sched_yield() }
    for region in [busy, quiet] {
      for _ in 0..<3 { region.wake([], wakesAlways: true, by: waker) }
    }
    #expect(woken.withLock { $0 } == 0)
    var turns = 1
    while waker.takeTurns() { turns += 1 }
    #expect(turns == 3)
    while woken.withLock({ $0 }) < count { sched_yield() }
    #expect(!waker.takeTurns())
  }

  @Test func aWaitingPageMayHaveAnyContent() throws {
    let region = try makeRegion(events: 4, bytes: 4096)
    let page = try WaitingPage(name: "test")
    let word = WaitingWord(page.descriptor)
    for value in [1, 0, .max, 77] as [UInt32] {
      word.write(value)
      Records.publish([1], to: region)
      region.wake([page], wakesAlways: false)
      #expect(word.value == 0)
    }
  }
}

extension Int {
  fileprivate var nextPowerOfTwo: Int { self > 1 ? 1 << (Int.bitWidth - (self - 1).leadingZeroBitCount) : 1 }
}
