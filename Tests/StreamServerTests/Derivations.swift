import Events
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Testing

@testable import StreamServer

/// A server with derived streams, whose sources run on one loop.
final class Derivations: Sendable {
  let harness: ServerHarness
  let loop: EventLoop
  let reports = Locked<[DerivedSource.Report]>([])

  init(_ harness: ServerHarness) throws {
    self.harness = harness
    loop = try EventLoop(name: "sources")
    try loop.start()
  }

  func source(
    _ name: String, of bases: [String], where filter: EventFilter? = nil, isSingle: Bool = false,
    status: SourceStatus = SourceStatus()
  ) -> DerivedSource {
    let server = harness.server
    return server.derivedSource(
      of: bases, for: name, where: filter, isSingle: isSingle, status: status, on: loop,
      checkpoint: { [weak server] in server?.checkpoint(of: name, isOfEvent: false) }
    ) { [self] report in reports.withLock { $0.append(report) } }
  }

  @discardableResult func add(
    _ name: String, of bases: [String], where filter: EventFilter? = nil,
    start: ShareStart = .whileSubscribed(linger: .zero), status: SourceStatus = SourceStatus(), log: EventLog? = nil,
    _ change: (inout StreamConfiguration) -> Void = { _ in }
  ) throws -> ServedStream {
    var configuration = StreamConfiguration(name: name, source: "of", replay: 1000, start: start)
    change(&configuration)
    let source = source(name, of: bases, where: filter, status: status)
    try harness.server.add(
      configuration, log: log, source: source.setFailureType(to: StreamFailure.self), status: status)
    return try #require(harness.server.streams[name])
  }
}

func withDerivations(
  _ limits: ServerLimits = ServerLimits(workers: 2), _ body: (ServerHarness, Derivations) async throws -> Void
) async throws {
  try await withServer(limits) { harness in
    let derivations = try Derivations(harness)
    defer { derivations.loop.stop() }
    try await body(harness, derivations)
  }
}

extension ServedStream {
  func state(showsNames: Bool) -> (word: String, message: String?) {
    var survey = BaseSurvey()
    return state(showsNames: showsNames, &survey)
  }

  func summary(showsNames: Bool) -> CatalogueEntry {
    var survey = BaseSurvey()
    return summary(showsNames: showsNames, &survey)
  }
}
