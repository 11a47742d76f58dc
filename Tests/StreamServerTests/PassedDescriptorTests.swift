import CLinux
import Dispatch
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Descriptors that clients send do not make a loop wait, whatever they are and whenever they come.
@Suite(.timeLimit(.minutes(10))) struct PassedDescriptorTests {
  private struct Failure: Error {}

  /// When the client sends them.
  private enum Moment: CaseIterable {
    case first, inRSocket, inHTTP, inWebSocket, afterAnError, overTheLimit
  }

  private static func attack(at moment: Moment, _ harness: ServerHarness) throws {
    let sent = try LingeringSocket()
    var client: WireClient?
    var bytes: [UInt8] = [0]
    let (rests, mayTurn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    switch moment {
    case .first: break
    case .inRSocket:
      client = try WireClient.ready(harness.path)
      client?.get("s")
      guard try client?.receive() != nil else { throw Failure() }
    case .inHTTP:
      client = try WireClient(harness.path)
      client?.send(Array("GET /streams/s HTT".utf8))
    case .inWebSocket: client = try WebSocketClient(harness).http.wire
    case .afterAnError: client = try WireClient(harness.path)
    case .overTheLimit: bytes = Array("GET".utf8)
    }
    // What is sent has no other holder than the server when that reads it.
    harness.server.loops[0].execute {
      rests.signal()
      mayTurn.wait()
    }
    rests.wait()
    defer { mayTurn.signal() }
    let sender = try client ?? WireClient(harness.path)
    // More than one read takes: the connection ends before the rest is read.
    if moment == .afterAnError { sender.send([UInt8](repeating: 0, count: 100_000)) }
    let code = sent.send(bytes, over: sender.descriptor.raw)
    guard code == (LocalSocket.isKernelInCharge ? EPERM : 0) else { throw Failure() }
    mayTurn.signal()
    guard !LocalSocket.isKernelInCharge else { return }
    harness.eventually { sent.isClosed }
    guard sent.isClosed else { throw Failure() }
  }

  private static func attackAll() async throws {
    try await withServer(ServerLimits(workers: 1, connections: 2)) { harness in
      let source = try harness.add("s")
      let bystander = try WireClient.ready(harness.path)
      bystander.subscribe("s", credit: 1000)
      harness.eventually { source.demand > .none }
      source.send(Array("0".utf8))
      guard try bystander.event().data == Array("0".utf8) else { throw Failure() }
      for (number, moment) in Moment.allCases.enumerated() {
        harness.eventually { harness.server.statistics.connections == 1 }
        let other = moment == .overTheLimit ? try WireClient.ready(harness.path) : nil
        harness.eventually { harness.server.statistics.connections == (other == nil ? 1 : 2) }
        try attack(at: moment, harness)
        source.send(Array("\(number + 1)".utf8))
        guard try bystander.event().data == Array("\(number + 1)".utf8) else { throw Failure() }
      }
    }
  }

  @Test func aLoopDoesNotWaitForThem() async throws { try await Self.attackAll() }

  @Test func aLoopDoesNotWaitForThemOnAnOldKernel() async throws {
    await #expect(processExitsWith: .success) {
      LocalSocket.isOldKernelAssumed.store(true, ordering: .relaxed)
      try await Self.attackAll()
    }
  }
}
