import Foundation
import Testing

/// The load generator, which ends when an event is lost, doubled or out of order. One run at a time: each measures.
@Suite(.serialized, .timeLimit(.minutes(10))) struct BenchTests {
  @Test(arguments: ["throughput", "replay", "clients"])
  func everyEventReachesEverySubscriberOnceAndInOrder(row: String) throws {
    try #require(FileManager.default.isExecutableFile(atPath: Run.daemon), "there is no \(Run.daemon)")
    let run = try Run(["--quick", "--runs", "1", "--verify", "--rows", row, Run.daemon])
    #expect(run.exitCode == 0, "\(run.errors)")
    #expect(run.output.contains("streamd") && run.output.contains("bare limit"))
  }

  @Test func anUnknownRowIsAnErrorThatListsTheRows() throws {
    let run = try Run(["--rows", "speed", "x"])
    #expect(run.errors.contains("no row \"speed\"; there are start, connections"))
    #expect(run.exitCode == 64)
  }
}

/// A run of `streambench`, up to its end.
private struct Run {
  /// The daemon that is measured: the absolute path in `STREAMD`, or the debug build of streamd's package.
  static let daemon =
    ProcessInfo.processInfo.environment["STREAMD"]
    ?? URL(filePath: #filePath).appending(path: "../../../../.build/debug/streamd").standardized.path

  let output: String
  let errors: String
  let exitCode: Int32

  init(_ arguments: [String]) throws {
    let process = Process()
    // The package manager puts every product into the folder of the tests.
    process.executableURL = Bundle.main.bundleURL.appending(path: "streambench")
    process.arguments = arguments
    let (output, errors) = (Pipe(), Pipe())
    (process.standardOutput, process.standardError) = (output, errors)
    try process.run()
    // Errors are one line and the usage, which fit into their pipe while the output is read.
    self.output = try Self.text(output)
    self.errors = try Self.text(errors)
    process.waitUntilExit()
    exitCode = process.terminationStatus
  }

  private static func text(_ pipe: Pipe) throws -> String {
    String(decoding: try pipe.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
  }
}
