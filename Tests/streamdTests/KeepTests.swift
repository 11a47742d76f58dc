import FoundationEssentials
import Glibc
import ReplayLog
import StreamClient
import StreamRuntime
import StreamSources
import TestSupport
import Testing

/// `keep`, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct KeepTests {
  @Test func aReconnectingClientPrintsEveryEventOnceOverKills() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "disk"))
    let client = try ChildProcess(
      ChildProcess.built("streamctl"), ["--socket", daemon.folder.path("s"), "sub", "s", "--format", "json"])
    var ids: [UInt64] = []
    func readOne() async throws {
      let line = try #require(await client.line())  // {"id":N,…
      ids.append(try #require(UInt64(line.dropFirst(6).prefix { $0 != "," })))
    }
    for _ in 0..<3 {
      for _ in 0..<20 { try await readOne() }
      await daemon.kill()
      try await daemon.start(keptStream(keep: "disk"))
      let later = try #require(try await daemon.events(1, from: .new).first?.id)
      while try #require(ids.last) < later { try await readOne() }
    }
    client.signal(SIGINT)
    #expect(ids == Array(ids[0]..<ids[0] + UInt64(ids.count)))
    let notices = "streamctl: connection lost, reconnecting\nstreamctl: reconnected\n"
    #expect(await client.text(of: client.errors) == notices + notices + notices)
    #expect(await client.end() == 130)
  }

  /// All earlier events are there, in order, and ids continue by one.
  private func expectNothingLost(_ daemon: RestartedDaemon, _ keep: String, _ end: () async throws -> Void) async throws
  {
    try await daemon.start(keptStream(keep: keep))
    var before = try await daemon.events(50)
    for _ in 0..<3 {
      if daemon.manager != nil, keep == "memory" {
        try await daemon.eventually("the log is kept") { daemon.keptLogs == ["kept-log-0"] }
      }
      try await end()
      try await daemon.start(keptStream(keep: keep))
      let after = try await daemon.events(before.count + 50)
      #expect(Array(after.prefix(before.count)) == before)
      #expect(ids(after) == Array(ids(after)[0]..<ids(after)[0] + UInt64(after.count)))
      #expect(try await daemon.events(1, from: .after(id: ids(before)[20])) == [before[21]])
      before = after
    }
    #expect(!daemon.log.contains("starts anew") && !daemon.log.contains("remain"))
  }

  @Test func aSecondDaemonRefusesTheStateDirectoryOfAnother() async throws {
    let first = try RestartedDaemon(hasManager: false)
    try await first.start(keptStream(keep: "disk"))
    let second = try RestartedDaemon(hasManager: false)
    try second.write(keptStream(keep: "memory"), state: first.state)
    let process = try ChildProcess(
      ChildProcess.built("streamd"), ["--config", second.folder.path("streamd.toml")])
    let owner = try #require(first.id)
    #expect(await process.end() == 75)
    #expect(
      await process.text(of: process.errors).contains(
        "cannot start: \(first.state) is the state directory of another daemon: process \(owner) uses it"))
    #expect(try await first.events(1).count == 1)
  }

  @Test func eventsInTheDescriptorStoreSurviveAKill() async throws {
    let daemon = try RestartedDaemon()
    try await expectNothingLost(daemon, "memory") { await daemon.kill() }
  }

  @Test func eventsOnDiskSurviveAKill() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await expectNothingLost(daemon, "disk") { await daemon.kill() }
  }

  @Test func eventsOnDiskSurviveAStopAndAReboot() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await expectNothingLost(daemon, "disk") {
      #expect(await daemon.stop() == 0)
      daemon.boot = String(daemon.boot.dropFirst()) + "7"
    }
  }

  /// The fleet may be older than this host, with lower ids than the time.
  @Test func aNewLogOfAFleetTakesAnyIdsOfIt() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let cluster = "[cluster]\nnats = [\"nats://127.0.0.1:9\"]\nname = \"test\"\n"
    try await daemon.start(cluster + keptStream(keep: "disk", every: "1h") + "share = \"fleet\"\n")
    #expect(await daemon.stop() == 0)
    let folder = LogFolder(path: daemon.state, boot: nil) { _, _, _ in }
    let left = try #require(try folder.remains(of: "s"))
    #expect(left.count == 0 && left.endPosition == 1)
    // If it leaves the fleet, its own ids are above the time.
    let recently = EventLoop.wallClock() - 600_000_000
    #expect(left.log().nextOwnID > recently && folder.firstID(of: "s") > recently)
  }

  /// Its ids could be above the fleet's for ever.
  @Test(arguments: ["disk", "memory"]) func aStreamThatBecomesASharedOneStartsAnew(keep: String) async throws {
    let daemon = try RestartedDaemon(hasManager: keep == "memory")
    try await daemon.start(keptStream(keep: keep))
    _ = try await daemon.events(3)
    await daemon.kill()
    let cluster = "[cluster]\nnats = [\"nats://127.0.0.1:9\"]\nname = \"test\"\n"
    try await daemon.start(cluster + keptStream(keep: keep) + "share = \"fleet\"\n")
    #expect(try await daemon.logs("the stream starts anew: its ids are this host's own"))
    #expect(await daemon.stop() == 0)
    guard keep == "disk" else { return }
    let folder = LogFolder(path: daemon.state, boot: nil) { _, _, _ in }
    #expect(try folder.remains(of: "s")?.endPosition == 1)
    #expect(access(daemon.state + "/s.log.own", F_OK) == 0)
  }

  @Test func afterAPowerFailureIdsContinueAfterAReportedGap() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "disk"))
    let before = try await daemon.events(20)
    await daemon.kill()
    daemon.boot = "00000000000000000000000000000002"
    try await daemon.start(keptStream(keep: "disk"))
    #expect(try await daemon.logs("events remain, ids continue after a gap"))
    let live = ids(try await daemon.events(1, from: .new))[0]
    let all = try await daemon.events(.max, through: live)
    #expect(Array(all.prefix(20)) == before)
    // Ids are microseconds: the start alone takes thousands.
    let steps = zip(ids(all), ids(all).dropFirst()).map { $1 - $0 }
    #expect(steps.filter { $0 > 1 }.count == 1 && steps.allSatisfy { $0 == 1 || $0 > 1000 })
  }

  @Test(arguments: ["memory", "no"]) func withoutAManagerOnlyIdsSurvive(keep: String) async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: keep))
    let before = try await daemon.events(20)
    #expect(await daemon.stop() == 0)
    try await daemon.start(keptStream(keep: keep))
    let after = try await daemon.events(1)
    #expect(ids(after)[0] > ids(before)[19])
    #expect(access(daemon.state, F_OK) != 0)
  }

  /// As with a clock that is set back by two hours while the daemon is not there.
  @Test(arguments: ["memory", "no"], [false, true]) func idsContinueWhateverTheClock(keep: String, isKilled: Bool)
    async throws
  {
    let daemon = try RestartedDaemon(hasManager: false)
    #expect(mkdir(daemon.state, 0o700) == 0)
    let ahead = UInt64(time(nil) + 7200) * 1_000_000
    let file = open(daemon.state + "/ids", O_CREAT | O_WRONLY, 0o600)
    let line = "\(ahead) s\n"
    #expect(write(file, line, line.utf8.count) == line.utf8.count)
    close(file)
    try await daemon.start(keptStream(keep: keep))
    let before = try await daemon.events(20)
    #expect(ids(before)[0] == ahead)
    if isKilled { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
    try await daemon.start(keptStream(keep: keep))
    let after = try await daemon.events(1)
    #expect(ids(after)[0] > ids(before)[19])
    #expect(isKilled || ids(after)[0] < ahead + 100_000)
  }

  @Test func anotherPlaceOrSizeKeepsTheEvents() async throws {
    let daemon = try RestartedDaemon()
    try await daemon.start(keptStream(keep: "memory"))
    var before = try await daemon.events(30)
    try await daemon.eventually("the log is kept") { !daemon.keptLogs.isEmpty }
    let places = [("memory", "16MiB", 1), ("disk", "16MiB", 0), ("disk", "8MiB", 0), ("memory", "8MiB", 1)]
    for (number, (keep, bytes, kept)) in places.enumerated() {
      await daemon.kill()
      try await daemon.start(keptStream(keep: keep, bytes: bytes))
      let after = try await daemon.events(before.count + 10)
      #expect(Array(after.prefix(before.count)) == before, "lost in move \(number)")
      #expect(ids(after) == Array(ids(after)[0]..<ids(after)[0] + UInt64(after.count)))
      try await daemon.eventually("\(kept) logs are kept") { daemon.keptLogs.count == kept }
      #expect((access(daemon.state + "/s.log", F_OK) == 0) == (keep == "disk"))
      before = after
    }
  }

  @Test func unusedDescriptorsAreRemovedFromTheManager() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start("abc".map { keptStream(String($0), keep: "memory") }.joined())
    try await daemon.eventually("three logs are kept") { daemon.keptLogs.count == 3 }
    await daemon.kill()
    try await daemon.start(keptStream("b", keep: "memory") + keptStream("c", keep: "no"))
    try await daemon.eventually("one log is kept") { daemon.keptLogs == ["kept-log-1"] }
    await daemon.kill()
    // Invalid bytes in place of a log, and a log of an unknown version.
    let file = open(daemon.folder.path("invalidBytes"), O_CREAT | O_RDWR, 0o600)
    write(file, "invalidBytes", 7)
    manager.keep(file, as: "kept-log-5")
    manager.keep(dup(file), as: "kept-future")
    try await daemon.start(keptStream("b", keep: "memory"))
    try await daemon.eventually("one log is kept") { daemon.keptLogs == ["kept-log-1"] }
    let sentence = "the stored descriptor of a stream could not be reused: it is not a log: it has 7 bytes"
    #expect(try await daemon.logs(sentence))
  }

  @Test func streamsOverTheManagersLimitAreReportedOnce() async throws {
    let daemon = try RestartedDaemon()
    daemon.limit = 18
    try await daemon.start("abcd".map { keptStream(String($0), keep: "memory", every: "1s") }.joined())
    try await daemon.eventually("two logs are kept") { daemon.keptLogs.count == 2 }
    #expect(
      try await daemon.logs(
        "the events of 2 streams will not survive the daemon: the service manager stores at most 18 descriptors "
          + "(FileDescriptorStoreMax=): c, d"))
    #expect(await daemon.stop() == 0)
    #expect(daemon.keptLogs.count == 2)
  }

  @Test(arguments: ["invalidBytes", "longer", "shorter"])
  func aDamagedFileIsSetAsideAndCostsOnlyItsHistory(damage: String) async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let streams = keptStream("s", keep: "disk") + keptStream("t", keep: "disk")
    try await daemon.start(streams)
    let before = try await daemon.events(20)
    let other = try await daemon.events(20, of: "t")
    #expect(await daemon.stop() == 0)
    let invalidBytes = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 7919) }
    let file = open(daemon.state + "/s.log", O_WRONLY)
    var damaged = stat()
    fstat(file, &damaged)
    let size = damaged.st_size
    #expect(ftruncate(file, damage == "invalidBytes" ? 0 : damage == "longer" ? size + 100 : size - 100) == 0)
    if damage == "invalidBytes" { #expect(write(file, invalidBytes, invalidBytes.count) == invalidBytes.count) }
    fstat(file, &damaged)
    close(file)
    try await daemon.start(streams)
    let after = try await daemon.events(20)
    #expect(ids(after)[0] > ids(before)[19])
    #expect(try await daemon.logs("was renamed to s.log.unreadable, the stream starts anew: it"))
    var aside = stat()
    #expect(stat(daemon.state + "/s.log.unreadable", &aside) == 0)
    #expect(aside.st_ino == damaged.st_ino && aside.st_size == damaged.st_size)
    #expect(try await daemon.events(20, of: "t") == other)
  }

  @Test func aFileOfAnotherVersionIsSetAsideAndReportedOnce() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "disk"))
    let before = try await daemon.events(20)
    #expect(await daemon.stop() == 0)
    let file = open(daemon.state + "/s.log", O_RDWR)
    var version: UInt32 = 9
    #expect(pwrite(file, &version, 4, 8) == 4)
    var whole = stat()
    fstat(file, &whole)
    close(file)
    for start in 0..<2 {
      try await daemon.start(keptStream(keep: "disk"))
      #expect(ids(try await daemon.events(1))[0] > ids(before)[19])
      #expect(await daemon.stop() == 0)
      let sentence = "was renamed to s.log.version-9, the stream starts anew: its layout is version 9"
      #expect(daemon.log.contains(sentence) == (start == 0))
    }
    var aside = stat()
    #expect(stat(daemon.state + "/s.log.version-9", &aside) == 0)
    #expect(aside.st_ino == whole.st_ino && aside.st_size == whole.st_size)
  }

  /// Streams that are not on disk do not open a file of their name, until a reload moves them there.
  @Test(arguments: ["memory", "no"]) func aReloadToTheDiskSetsAFileOfAnotherVersionAside(keep: String) async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "disk"))
    _ = try await daemon.events(1)
    #expect(await daemon.stop() == 0)
    let file = open(daemon.state + "/s.log", O_RDWR)
    var version: UInt32 = 9
    #expect(pwrite(file, &version, 4, 8) == 4)
    var whole = stat()
    fstat(file, &whole)
    close(file)
    try await daemon.start(keptStream(keep: keep))
    let before = try await daemon.events(20)
    #expect(access(daemon.state + "/s.log", F_OK) == 0)
    try await daemon.reload(keptStream(keep: "disk"))
    #expect(try await daemon.logs("the log file was renamed to s.log.version-9: its layout is version 9"))
    var aside = stat()
    #expect(stat(daemon.state + "/s.log.version-9", &aside) == 0)
    #expect(aside.st_ino == whole.st_ino && aside.st_size == whole.st_size)
    #expect(try await daemon.events(20) == before && access(daemon.state + "/s.log", F_OK) == 0)
    #expect(await daemon.stop() == 0)
  }

  @Test func aLogOfAnotherVersionStaysInTheDescriptorStore() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(keptStream(keep: "memory"))
    try await daemon.eventually("the log is kept") { daemon.keptLogs == ["kept-log-0"] }
    await daemon.kill()
    var version: UInt32 = 9
    #expect(pwrite(try #require(manager.kept.first { $0.name == "kept-log-0" }).descriptor, &version, 4, 8) == 4)
    try await daemon.start(keptStream(keep: "memory"))
    try await daemon.eventually("both logs are kept") { daemon.keptLogs == ["kept-log-0", "kept-log-1"] }
    #expect(try await daemon.logs("stored descriptor log-0 is not used and stays stored: its layout is"))
    _ = try await daemon.events(1)
  }

  @Test func withoutADiskTheStreamRunsFromMemoryAndReportsIt() async throws {
    let daemon = try RestartedDaemon()
    try await daemon.start(keptStream(keep: "disk"), state: "/proc/streamd")
    let before = try await daemon.events(20)
    let sentence = "/proc/streamd: it cannot be created: No such file or directory"
    #expect(try await daemon.logs("s: events are stored in memory, not on disk: \(sentence)\n"))
    let catalogue = try await daemon.events(1, of: "$streams", from: .latest)
    #expect(
      String(decoding: catalogue[0].data, as: UTF8.self).contains(
        #""message":"not on disk: it cannot be created: No such file or directory""#))
    try await daemon.eventually("the log is kept") { daemon.keptLogs.count == 1 }
    await daemon.kill()
    // The disk is back: what memory held goes there.
    try await daemon.start(keptStream(keep: "disk"))
    #expect(try await daemon.events(20) == before)
    try await daemon.eventually("no log is kept") { daemon.keptLogs.isEmpty }
    #expect(access(daemon.state + "/s.log", F_OK) == 0)
  }

  /// In the way of a larger file, as a full disk is.
  private func withoutRoom(_ daemon: RestartedDaemon, _ body: () async throws -> Void) async throws {
    #expect(mkdir(daemon.state + "/s.log.new", 0o700) == 0)
    try await body()
    #expect(rmdir(daemon.state + "/s.log.new") == 0)
    #expect(try await daemon.logs("events are stored in memory, not on disk"))
  }

  @Test(arguments: [false, true], [false, true])
  func aFileStaysIfALargerOneHasNoSpace(hasManager: Bool, isReload: Bool) async throws {
    let daemon = try RestartedDaemon(hasManager: hasManager)
    let larger = keptStream(keep: "disk", bytes: "16MiB")
    try await daemon.start(keptStream(keep: "disk"))
    let before = try await daemon.events(30)
    var last: [StreamEvent] = []
    try await withoutRoom(daemon) {
      if isReload {
        try await daemon.reload(larger)
      } else {
        #expect(await daemon.stop() == 0)
        try await daemon.start(larger)
      }
      last = try await daemon.events(60)
      #expect(Array(last.prefix(30)) == before)
      #expect(access(daemon.state + "/s.log", F_OK) == 0)
      if hasManager { try await daemon.eventually("the log is kept") { daemon.keptLogs.count == 1 } }
      await daemon.kill()
    }
    try await daemon.start(keptStream(keep: "disk"))
    let live = ids(try await daemon.events(1, from: .new))[0]
    let after = try await daemon.events(.max, through: live)
    #expect(Array(after.prefix(30)) == before)
    if hasManager {
      #expect(Array(after.prefix(60)) == last)
      try await daemon.eventually("no log is kept") { daemon.keptLogs.isEmpty }
    } else {
      // An id that was given is not given again.
      let old = Dictionary(last.map { ($0.id, $0) }) { first, _ in first }
      #expect(after.allSatisfy { event in old[event.id].map { $0 == event } ?? (event.id ?? 0 > ids(last)[59]) })
    }
  }

  enum Displacement: CaseIterable { case deletedFile, deletedFolder, fullDisk }

  /// Without a restart, which would lose the events of a stream without a service manager.
  @Test(arguments: Displacement.allCases, [false, true])
  func aReloadStoresEventsOnDiskAgain(displacement: Displacement, hasManager: Bool) async throws {
    let daemon = try RestartedDaemon(hasManager: hasManager)
    let stream = keptStream(keep: "disk") + keptStream("unchanged", keep: "disk")
    let file = daemon.state + "/s.log"
    if displacement == .fullDisk {
      #expect(mkdir(daemon.state, 0o700) == 0)
      try await withoutRoom(daemon) { try await daemon.start(stream) }
    } else {
      try await daemon.start(stream)
      #expect(unlink(file) == 0)
    }
    if displacement == .deletedFolder {
      for name in ["unchanged.log", "ids"] { #expect(unlink(daemon.state + "/" + name) == 0) }
      #expect(rmdir(daemon.state) == 0)
    }
    let socket = daemon.folder.path("s")
    let reader = Task {
      let connection = try StreamConnection(socket: socket)
      defer { connection.close() }
      var events: [StreamEvent] = []
      for try await event in connection.stream("s", options: .init(from: .since("1970-01-01T00:00:00Z"))).values {
        events.append(event)
        if events.count == 200 { break }
      }
      return events
    }
    let before = try await daemon.events(30)
    func isOnDisk() async throws -> Bool {
      let catalogue = try await daemon.events(1, of: "$streams", from: .latest)
      return !String(decoding: catalogue[0].data, as: UTF8.self).contains("\"message\":\"not on disk: ")
    }
    if displacement != .fullDisk {
      let path = displacement == .deletedFile ? file : daemon.state + "/unchanged.log"
      let sentence = "\(path) was deleted, renamed or replaced, and a restart begins without this log\n"
      #expect(try await daemon.logs(sentence))
    }
    #expect(try await eventually { try await !isOnDisk() })
    try await daemon.reload(stream)
    #expect(daemon.log.components(separatedBy: "s: events are stored on disk again\n").count == 2, "\(daemon.log)")
    #expect(daemon.log.contains("unchanged: events are stored") == (displacement == .deletedFolder))
    #expect(try await eventually { try await isOnDisk() })
    let read = try await reader.value
    #expect(Array(read.prefix(30)) == before && read.allSatisfy { $0.gap == nil })
    // The new folder is locked, as the former one was.
    try daemon.folder.write(
      Array("[server]\nsocket = \"\(daemon.folder.path("t"))\"\nstate = \"\(daemon.state)\"\n\(stream)".utf8),
      to: "other.toml")
    let other = try await run(["--config", daemon.folder.path("other.toml")])
    #expect(other.status != 0 && other.errors.contains("is the state directory of another daemon"), "\(other)")
    try await daemon.reload(stream)
    #expect(daemon.log.components(separatedBy: "s: events are stored on disk again\n").count == 2)
    if hasManager { try await daemon.eventually("no log is kept") { daemon.keptLogs.isEmpty } }
    await daemon.kill()
    #expect(access(daemon.state + "/ids", F_OK) == 0)
    try await daemon.start(stream)
    #expect(Array(try await daemon.events(200)) == read)
    #expect(await daemon.stop() == 0)
  }

  /// It may have events that the log lacks.
  @Test func aReloadReplacesNoFileOfAFormerProcess() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "disk"))
    let before = try await daemon.events(30)
    #expect(await daemon.stop() == 0)
    let (file, away) = (daemon.state + "/s.log", daemon.state + "/away")
    #expect(rename(file, away) == 0 && symlink("nowhere", file) == 0)
    try await daemon.start(keptStream(keep: "disk"))
    #expect(try await daemon.logs("events are stored in memory, not on disk"))
    #expect(unlink(file) == 0 && rename(away, file) == 0)
    try await daemon.reload(keptStream(keep: "disk"))
    await daemon.kill()
    try await daemon.start(keptStream(keep: "disk"))
    #expect(Array(try await daemon.events(30)) == before)
  }

  @Test func aKillBeforeTheManagerHasReceivedALogLosesNoEvents() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(keptStream(keep: "disk"))
    let before = try await daemon.events(30)
    try await daemon.eventually("it is ready") { daemon.log.contains(" serves ") }
    try manager.fill()
    try daemon.write(keptStream(keep: "memory"))
    daemon.signal(SIGHUP)
    #expect(try await daemon.logs("configuration reloaded"))
    #expect(try await daemon.logs("has not received all logs"))
    await daemon.kill()
    try await daemon.start(keptStream(keep: "memory"))
    #expect(Array(try await daemon.events(30)) == before)
  }

  @Test func aSupersededFileIsRemovedWhenKeepChanges() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "disk"))
    _ = try await daemon.events(1)
    try await withoutRoom(daemon) { try await daemon.reload(keptStream(keep: "disk", bytes: "16MiB")) }
    #expect(access(daemon.state + "/s.log", F_OK) == 0)
    try await daemon.reload(keptStream(keep: "memory", bytes: "16MiB"))
    #expect(access(daemon.state + "/s.log", F_OK) != 0)
  }

  @Test(arguments: ["log-9223372036854775807", "log--9223372036854775808", "config-9223372036854775807"])
  func anExtremeNumberInAStoredNameIsHarmless(name: String) async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    let file = open(daemon.folder.path("invalidBytes"), O_CREAT | O_RDWR, 0o600)
    manager.keep(file, as: "kept-" + name)
    try await daemon.start(keptStream(keep: "memory"))
    try await daemon.eventually("the log is kept") { daemon.keptLogs == ["kept-log-0"] }
    _ = try await daemon.events(1)
  }

  @Test func aPipeIsCheckedButNotServed() async throws {
    let folder = try TemporaryFolder()
    #expect(mkfifo(folder.path("fifo"), 0o600) == 0)
    let fifo = try await run(["--config", folder.path("fifo")])
    #expect(fifo.status == 78 && fifo.errors.contains("it is not a regular file"))
    let streamd = try ChildProcess.built("streamd")
    for (file, name) in [("-", "standard input"), ("/dev/stdin", "/dev/stdin")] {
      let script = #"printf '[streams.s]\ntimer.evry = "1s"\n' | "$0" --check "$1""#
      let check = try ChildProcess("sh", ["-c", script, streamd, file])
      let sentence = "streamd: \(name):2: streams.s.timer.evry: unknown key; did you mean \"every\"?\n"
      #expect(await check.text(of: check.errors) == sentence)
      #expect(await check.end() == 78)
    }
    let named = try ChildProcess(streamd, ["--check", folder.path("fifo")])
    try folder.write(Array("[streams.s]\npublish = true\n".utf8), to: "fifo")
    #expect(await named.text(of: named.output) == "\(folder.path("fifo")): 1 stream, no errors\n")
    #expect(await named.end() == 0)
    let zero = try await run(["--check", "/dev/zero"])
    #expect(zero.status == 78 && zero.errors.contains("it is not a regular file or a pipe"))
  }

  @Test func checkPrintsNoControlCharacters() async throws {
    let folder = try TemporaryFolder()
    let text = "[server]\nsocket = \"/s\"\n[streams.s]\ntimer = { every = \"\\u001B[2J\\u202E\" }\n"
    try folder.write(Array(text.utf8), to: "streamd.toml")
    let check = try await run(["--check", "--config", folder.path("streamd.toml")])
    #expect(check.status != 0 && check.errors.contains("2J"))
    #expect(!check.errors.unicodeScalars.contains { $0 == "\u{1B}" || $0 == "\u{202E}" })
  }

  @Test func checkReportsProgramsThatRoundNumbers() async throws {
    let folder = try TemporaryFolder()
    let text = """
      [streams.exact]
      publish = true
      jq = ".a"
      distinct = ".id"
      key = ".b[0]"
      [streams.rounded]
      publish = true
      jq = ".[]"
      distinct = ".id // 0"
      key = ".a + 1"
      """
    try folder.write(Array(text.utf8), to: "streamd.toml")
    let check = try await run(["--check", "--config", folder.path("streamd.toml")])
    #expect(check.status == 0 && !check.output.contains("exact"))
    let remark = "jq 1.6 rounds numbers above 2^53, except in events that a program passes on unchanged: "
    #expect(check.output.contains(remark + "rounded (jq, key, distinct)\n") || !JQTransform.roundsNumbers(".[]"))
  }

  @Test func checkReportsAStateDirectoryThatCannotBeCreated() async throws {
    let folder = try TemporaryFolder()
    let streams = keptStream("a", keep: "disk") + keptStream("b", keep: "memory")
    func check(_ state: String) async throws -> (status: CInt, output: String, errors: String) {
      let text = "[server]\nstate = \"\(folder.path)/\(state)\"\n" + streams
      try folder.write(Array(text.utf8), to: "streamd.toml")
      return try await run(["--check", "--config", folder.path("streamd.toml")])
    }
    let missing = try await check("none/state")
    #expect(missing.status == 0)
    let obstacle = "does not exist and cannot be created (No such file or directory)"
    #expect(
      missing.output.contains("\(folder.path)/none/state \(obstacle), but is required for keep = \"disk\" of: a\n"))
    try folder.write([], to: "file")
    #expect(try await check("file").output.contains("/file is not a directory, but is required for keep"))
    for state in ["state", "state/", "."] {
      let made = try await check(state)
      #expect(made.status == 0 && !made.output.contains("is required"), "\(made.output)")
    }
  }
}
