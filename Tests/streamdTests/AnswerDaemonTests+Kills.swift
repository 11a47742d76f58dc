import FoundationEssentials
import StreamClient
import TaggedFields
import TestSupport
import Testing

@testable import streamd

// Kills of the daemon, and what clients see of a request afterwards.

extension AnswerDaemonTests {
  /// How far a request has come when the daemon is killed.
  enum KilledPhase: CaseIterable {
    /// Its body is stored, and it waits for its turn.
    case bodyIsStored
    /// It has its turn, and waits for its host.
    case waitsForItsHost
    /// It is stored that it is being sent, and it is sent.
    case sent
    case firstEvent
    /// All events have come, and not the end.
    case lastEvent
    /// The end has come, and is stored.
    case complete

    var isSentByTheNextProcess: Bool { [.bodyIsStored, .waitsForItsHost].contains(self) }
  }

  @Test(arguments: KilledPhase.allCases) func aKillLeavesOfARequestWhatItsPhaseSays(phase: KilledPhase) async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    let query =
      switch phase {
      case .sent: "hold=0"
      case .bodyIsStored, .firstEvent: "hold=1"
      case .lastEvent: "hold=5"
      case .waitsForItsHost, .complete: ""
      }
    let busy = """
      [http]
      max_per_host = 1
      [streams.busy]
      http = { url = "\(upstream.url("/hang/\(key)-busy"))", every = "1d" }
      start = "always"

      """
    let configuration = template(query, phase == .bodyIsStored ? "running = 1" : "")
    try await daemon.start((phase == .waitsForItsHost ? busy : "") + configuration)
    func put(_ name: String) async throws -> Int {
      try await http(path, "PUT", "/streams/answers/\(name)", body: name).status
    }
    if phase == .bodyIsStored { #expect(try await put("former") == 201) }
    if phase == .waitsForItsHost { while try upstream.count("\(key)-busy") == 0 { await Task.yield() } }
    #expect(try await put("a") == 201)
    let count = try await reach(phase, daemon)
    let sentBefore = phase.isSentByTheNextProcess ? 0 : 1
    #expect(try upstream.modelled(key).requests["a"] ?? 0 == sentBefore)
    await daemon.kill()
    _ = try upstream.text("/release/\(key)")
    try await daemon.start(configuration)
    // Whoever reads it: the events that have come, and one sentence.
    for _ in 0..<2 {
      let (read, failure) = await answer(path, "answers/a")
      #expect(read == words("a", count))
      let isLost = [.sent, .firstEvent, .lastEvent].contains(phase)
      #expect(isLost ? failure?.contains("the request may have been sent before a kill") == true : failure == nil)
    }
    #expect(try upstream.modelled(key).requests["a"] == 1)
    // Who asks again gets the same answer, or another one if it has failed.
    let isAnother = [.sent, .firstEvent, .lastEvent].contains(phase)
    let again = try await http(path, "PUT", "/streams/answers/a", body: "a")
    #expect(again.status == (isAnother ? 201 : 200), "\(again)")
    #expect(try await texts(path, "answers/a") == words("a"))
    #expect(try upstream.modelled(key).requests["a"] == (isAnother ? 2 : 1))
    #expect(await daemon.stop() == 0)
  }

  /// Waits for a phase.
  /// - Returns: the words that the next process has.
  private func reach(_ phase: KilledPhase, _ daemon: RestartedDaemon) async throws -> Int {
    let path = daemon.folder.path("s")
    switch phase {
    case .bodyIsStored: return 5
    case .waitsForItsHost:
      while try await !http(path, "GET", "/streams/$streams").body.contains("max_per_host transfers in flight") {
        try await Task.sleep(for: .milliseconds(20))
      }
      #expect(step(of: "answers/a", daemon) == .waiting)
      return 5
    case .sent:
      while try upstream.modelled(key).requests["a"] == nil { try await Task.sleep(for: .milliseconds(2)) }
      #expect(step(of: "answers/a", daemon) == .sent)
      return 0
    case .firstEvent, .lastEvent:
      let count = phase == .firstEvent ? 1 : 5
      _ = try await daemon.events(count, of: "answers/a")
      return count
    case .complete:
      #expect(try await texts(path, "answers/a") == words("a"))
      try await daemon.eventually("its end is stored") { step(of: "answers/a", daemon) == .complete }
      return 5
    }
  }

  /// What the file of a request says.
  private func step(of name: String, _ daemon: RestartedDaemon) -> AnswerRecord.Step? {
    let file = StateFiles(in: daemon.state).folder("requests").content(of: AnswerRecord.file(of: name))
    return file.flatMap { try? RecordFields.read(AnswerRecord.self, from: $0[...]) }?.step
  }

  /// The words of an answer, and how it fails.
  private func answer(_ path: String, _ name: String) async -> (words: [String], failure: String?) {
    var data: [String] = []
    do {
      let connection = try StreamConnection(socket: path)
      defer { connection.close() }
      for try await event in connection.stream(name).values {
        data.append("data: " + String(decoding: event.data, as: UTF8.self))
      }
      return (words(in: data.joined(separator: "\n")), nil)
    } catch {
      return (words(in: data.joined(separator: "\n")), "\(error)")
    }
  }

  /// Whenever the daemon is killed: a request is made once, or, if it may be repeated, until its answer is complete.
  @Test(arguments: [false, true]) func twentyKillsLoseNoRequestAndRepeatNone(repeats: Bool) async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    let configuration = template(
      "pause=0.002&words=30", "running = 4\nstreams = 1000", http: ", idempotent = \(repeats)")
    var random = SystemRandomNumberGenerator()
    var made: [String] = []
    for round in 1...20 {
      try await daemon.start(configuration)
      for number in 1...5 {
        let name = "r\(round)-\(number)"
        made.append(name)
        #expect(try await http(path, "PUT", "/streams/answers/\(name)", body: name).status == 201)
      }
      try await Task.sleep(for: .milliseconds(Int.random(in: 0...80, using: &random)))
      await daemon.kill()
    }
    try await daemon.start(configuration)
    var (complete, lost) = (0, 0)
    for name in made {
      do {
        let read = try await texts(path, "answers/\(name)")
        #expect(repeats ? read.suffix(30) == words(name, 30)[...] : read == words(name, 30), "\(name)")
        complete += 1
      } catch {
        #expect("\(error)".contains("the request may have been sent before a kill"))
        lost += 1
      }
    }
    let requests = try upstream.modelled(key).requests
    #expect(made.allSatisfy { requests[$0] ?? 0 >= (repeats ? 1 : 0) && (repeats || requests[$0] ?? 0 <= 1) })
    #expect(repeats ? lost == 0 : complete > 0)
    #expect(await daemon.stop() == 0)
  }
}
