import Foundation
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import StreamSources

/// A client on a thread that runs while `body` does. All its programs have ended and are reaped when this returns.
func withSourceThread<R>(
  transfersPerHost: Int = 4, _ body: (SourceThread) async throws -> R
) async throws -> R {
  let thread = try SourceThread(transfersPerHost: transfersPerHost)
  try thread.start()
  let result: Result<R, any Error>
  do { result = .success(try await body(thread)) } catch { result = .failure(error) }
  await withCheckedContinuation { continuation in
    thread.stop(within: .zero) { continuation.resume() }
  }
  return try result.get()
}

/// The result of one transfer.
struct Fetched: Sendable {
  var result: Result<UpstreamResponse, SourceFailure>
  var heads = 0
  var pieces = 0
  var waits: [String] = []
  var body: [UInt8]

  var failure: String? {
    if case .failure(let failure) = result { failure.sentence } else { nil }
  }
  var status: Int? { try? result.get().status }
  var text: String { String(decoding: body, as: UTF8.self) }
  func json() throws -> [String: String] { try JSONDecoder().decode([String: String].self, from: Data(body)) }
}

/// Takes a complete response; optionally pauses at each piece and resumes in the next turn.
final class Collector: Transfer.Handler {
  var fetched = Fetched(result: .failure(SourceFailure("nothing yet")), body: [])
  var transfer: Transfer?
  let plan: Transfer.Plan
  let pausing: EventLoop?
  private var isPaused = false
  private let done: (Fetched) -> Void

  init(plan: Transfer.Plan = .take, pausing: EventLoop? = nil, done: @escaping (Fetched) -> Void) {
    self.plan = plan
    self.pausing = pausing
    self.done = done
  }

  func transferWaits(_ reason: String) { fetched.waits.append(reason) }

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    fetched.heads += 1
    return plan
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    if let pausing, !isPaused {
      isPaused = true
      _ = pausing.schedule(after: .zero) { [self] in transfer?.resume() }
      return .pause
    }
    isPaused = false
    fetched.pieces += 1
    fetched.body += bytes
    return .next
  }

  func transferEnded(_ result: Result<UpstreamResponse, SourceFailure>) {
    fetched.result = result
    done(fetched)
    transfer = nil
  }
}

extension SourceThread {
  /// Runs one transfer, which the test may hold for as long as a busy machine needs.
  func fetch(
    _ url: String, plan: Transfer.Plan = .take, pausing: Bool = false,
    _ change: @escaping @Sendable (inout UpstreamRequest) -> Void = { _ in }
  ) async throws -> Fetched {
    var request = UpstreamRequest(url: try HTTPURL(url), userAgent: "test")
    request.timeout = hangTime
    change(&request)
    let final = request
    let refusal: SourceFailure? = if case .refuse(let failure) = plan { failure } else { nil }
    let isTaken = if case .take = plan { true } else { false }
    return await withCheckedContinuation { continuation in
      loop.execute { [self] in
        let plan: Transfer.Plan = refusal.map { .refuse($0) } ?? (isTaken ? .take : .discard)
        let collector = Collector(plan: plan, pausing: pausing ? loop : nil) { continuation.resume(returning: $0) }
        collector.transfer = httpClient?.start(final, handler: collector)
      }
    }
  }

  /// The number of requests with the test's key.
  func seen(_ key: String, at upstream: Upstream) async throws -> Int? {
    Int(try await fetch(upstream.url("/seen/\(key)")).text)
  }

  /// The headers of its last one, names in lower case.
  func lastHeaders(_ key: String, at upstream: Upstream) async throws -> [String: String] {
    try await fetch(upstream.url("/head/\(key)")).json()
  }
}
