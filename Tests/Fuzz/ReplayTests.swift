// The inputs of the corpora, and inputs close to them, as ordinary tests; Tests/Fuzz/run searches for others.
//
// A broken invariant ends the process. Hence each target has a process of its own, which writes an input to a file before
// it reads the input: if the process fails, the file is the input that failed. Add it to the corpus if it is new.

import Foundation
import Testing

/// The functions that `Tests/Fuzz/run` calls with each input, by the names of the targets' folders, and the numbers of inputs
/// to derive from the corpus. All together take a few seconds of processor time in a debug build.
private let targets: [String: (read: @Sendable (UnsafeRawBufferPointer) -> Void, derivedCount: Int)] = [
  "EventFilters": (fuzzEventFilters, 3000),
  "EventSplitters": (fuzzEventSplitters, 3000),
  "Fleet": (fuzzFleet, 3000),
  "FleetHosts": (fuzzFleetHosts, 3000),
  "HTTP": (fuzzHTTP, 3000),
  "JQ": (fuzzJQ, 3000),
  "JetStream": (fuzzJetStream, 3000),
  "LogRecovery": (fuzzLogRecovery, 1000),
  "NATS": (fuzzNATS, 3000),
  "Patterns": (fuzzPatterns, 3000),
  "PeerSource": (fuzzPeerSource, 3000),
  "RSocket": (fuzzRSocket, 5000),
  "Serving": (fuzzServing, 200),
  "StateRecovery": (fuzzStateRecovery, 500),
  "SharedRegion": (fuzzSharedRegion, 500),
  "Templates": (fuzzTemplates, 2000),
  "WebSocketSource": (fuzzWebSocketSource, 3000),
]

private let fuzzFolder = URL(filePath: #filePath).deletingLastPathComponent()

/// One process at a time, because tests that run at the same time have time limits.
@Suite(.serialized) struct ReplayTests {
  @Test func everyFolderIsATarget() throws {
    let content = try FileManager.default.contentsOfDirectory(at: fuzzFolder, includingPropertiesForKeys: nil)
    let folders = content.filter(\.hasDirectoryPath).map(\.lastPathComponent)
    #expect(folders.sorted() == targets.keys.sorted())
  }

  @Test(arguments: targets.keys.sorted()) func everyKnownInputIsRead(target: String) async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "fuzz-\(target)-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    let replay = Replay(
      target: target, inputPath: folder.appending(path: "input").path(),
      errorsPath: folder.appending(path: "errors").path())
    let result = await #expect(processExitsWith: .success) { [replay = replay as Replay] in try replay.run() }
    if result == nil {
      let errors = (try? String(contentsOfFile: replay.errorsPath, encoding: .utf8)) ?? ""
      Issue.record("\(target) fails with the input \(replay.inputPath), \(errors.prefix { $0 != "\n" })")
    } else {
      try FileManager.default.removeItem(at: folder)
    }
  }
}

/// Reads all inputs of one target, in that target's process.
private struct Replay: Codable, Sendable {
  let target: String
  /// The file of the current input.
  let inputPath: String
  /// The file that becomes the standard error, which an exit test discards otherwise. It begins with the input's name.
  let errorsPath: String

  func run() throws {
    precondition(dup2(open(errorsPath, O_WRONLY | O_CREAT | O_APPEND, 0o600), STDERR_FILENO) == STDERR_FILENO)
    let file = open(inputPath, O_WRONLY | O_CREAT, 0o600)
    guard let (read, derivedCount) = targets[target] else { preconditionFailure("\(target) is not a target") }
    let corpus = fuzzFolder.appending(path: "\(target)/Corpus")
    let known = try FileManager.default.contentsOfDirectory(at: corpus, includingPropertiesForKeys: nil)
      .sorted { $0.path() < $1.path() }
      .map { Input(name: $0.lastPathComponent, bytes: [UInt8](try Data(contentsOf: $0))) }
    precondition(!known.isEmpty, "the corpus is empty")
    var derivation = Derivation(known)
    for input in known + (0..<derivedCount).map({ _ in derivation.next() }) {
      precondition(ftruncate(file, 0) == 0 && pwrite(file, input.bytes, input.bytes.count, 0) == input.bytes.count)
      let name = input.name + ": "
      precondition(ftruncate(STDERR_FILENO, 0) == 0 && write(STDERR_FILENO, name, name.utf8.count) == name.utf8.count)
      alarm(60)  // ends the process
      input.bytes.withUnsafeBytes { read($0) }
    }
    alarm(0)
  }
}

private struct Input {
  /// The name of its file in the corpus, and how it differs.
  var name: String
  var bytes: [UInt8]
}

/// Inputs close to known ones: in turn, the first bytes of each, and each with one byte changed. Every run has the same.
private struct Derivation {
  private let known: [Input]
  private var count = 0
  private var state: UInt64 = 1

  init(_ known: [Input]) { self.known = known.filter { !$0.bytes.isEmpty } }

  mutating func next() -> Input {
    var input = known[count % known.count]
    let place = number(below: input.bytes.count)
    if count / known.count % 2 == 0 {
      input.bytes.removeSubrange(place...)
      input.name = "the first \(place) bytes of \(input.name)"
    } else {
      input.bytes[place] ^= UInt8(1 + number(below: 255))
      input.name = "\(input.name) with another byte \(place)"
    }
    count += 1
    return input
  }

  /// A linear congruential generator with the constants of Knuth's MMIX.
  private mutating func number(below limit: Int) -> Int {
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return Int(state >> 33) % limit
  }
}
