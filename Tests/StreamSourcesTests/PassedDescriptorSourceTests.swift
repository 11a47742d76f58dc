import Dispatch
import Glibc
import Reactive
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// Descriptors that a server at a Unix socket sends do not make the source thread wait.
@Suite(.timeLimit(.minutes(10))) struct PassedDescriptorSourceTests {
  private struct Failure: Error {}

  private enum Kind: CaseIterable { case lines, messages, peer, page }

  private static func attack(_ kind: Kind) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let listener =
      kind == .messages
      ? try LineListener.messages(at: path) : LineListener(try UnixSocket.listen(at: path, mode: 0o600))
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let retry = Backoff(first: .milliseconds(1), max: .milliseconds(2))
      async let fetched = kind == .page ? thread.fetch("http://a/") { $0.unixSocket = path } : nil
      switch kind {
      case .lines, .messages:
        var configuration = LineConfiguration(.unix(path))
        configuration.retry = retry
        LineSource(configuration).source(on: thread).subscribe(taker)
      case .peer:
        guard let address = ServerAddress("unix:" + path) else { throw Failure() }
        var configuration = PeerConfiguration(address: address, stream: "s")
        configuration.retry = retry
        PeerSource(configuration).source(on: thread).subscribe(taker)
      case .page: break
      }
      let server = try await listener.accept()
      let sent = try LingeringSocket()
      // What is sent has no other holder than the source thread when that reads it.
      let (rests, mayTurn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
      thread.loop.execute {
        rests.signal()
        mayTurn.wait()
      }
      rests.wait()
      let code = server.send(sent)
      mayTurn.signal()
      guard code == (LocalSocket.isKernelInCharge ? EPERM : 0) else { throw Failure() }
      if code == 0 {
        if kind != .page { _ = try await listener.accept() }
        guard try await eventually({ sent.isClosed }) else { throw Failure() }
      }
      await withCheckedContinuation { continuation in thread.loop.execute { continuation.resume() } }
      if kind == .page, code == 0 {
        guard try await fetched?.failure == "\(path) closed the connection before the response was complete" else {
          throw Failure()
        }
      } else if kind == .page {
        try await server.send("HTTP/1.1 204 No Content\r\n\r\n")
        guard try await fetched?.status == 204 else { throw Failure() }
      }
      taker.cancel()
    }
  }

  @Test func theSourceThreadDoesNotWaitForThem() async throws {
    for kind in Kind.allCases { try await Self.attack(kind) }
  }

  @Test func theSourceThreadDoesNotWaitForThemOnAnOldKernel() async throws {
    await #expect(processExitsWith: .success) {
      LocalSocket.isOldKernelAssumed.store(true, ordering: .relaxed)
      for kind in Kind.allCases { try await Self.attack(kind) }
    }
  }
}
