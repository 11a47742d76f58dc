import Testing

@testable import StreamRuntime

/// What belongs to a loop is used on its thread: debug builds, which tests are, stop where it is not.
struct ConfinementTests {
  /// A loop that runs on a thread of its own.
  private static func runningLoop() async throws -> EventLoop {
    let loop = try EventLoop(name: "loop")
    try loop.start()
    await withCheckedContinuation { continuation in loop.execute { continuation.resume() } }
    return loop
  }

  @Test func anotherThreadStopsAtTheCheck() async {
    await #expect(processExitsWith: .failure) {
      let loop = try await Self.runningLoop()
      loop.assertOnLoop()
    }
  }

  @Test func anotherThreadStopsAtATimer() async {
    await #expect(processExitsWith: .failure) {
      let loop = try await Self.runningLoop()
      _ = loop.schedule(after: .seconds(1)) {}
    }
  }

  @Test func itsOwnThreadPasses() async throws {
    let loop = try await Self.runningLoop()
    await withCheckedContinuation { continuation in
      loop.execute {
        loop.assertOnLoop()
        loop.cancel(loop.schedule(after: .seconds(1)) {})
        continuation.resume()
      }
    }
    loop.stop()
  }

  @Test func anyThreadPreparesALoopThatDoesNotRun() throws {
    let loop = try EventLoop(name: "loop")
    loop.assertOnLoop()
    _ = loop.schedule(after: .zero) { loop.stop() }
    loop.run()
    loop.assertOnLoop()
  }
}
