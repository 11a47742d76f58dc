import ClientTestSupport
import Glibc
import RSocket
import Reactive
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// A publisher and its remote subscriber, with a socket in between.
@Suite(.timeLimit(.minutes(10))) struct ServingTests {
  @Test func demandIsForwardedThroughTheSocket() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let asked = Locked(Subscribers.Demand.none)
    let isCancelled = CurrentValueSubject<Bool, Never>(false)
    let numbers = (1...100).publisher.handleEvents(
      receiveCancel: { isCancelled.value = true }, receiveRequest: { demand in asked.withLock { $0 += demand } })
    let served = try numbers.serve(as: "numbers", at: path)
    #expect(asked.withLock { $0 } == .none)

    let connection = try StreamConnection(socket: path)
    let probe = connection.stream("numbers").probe(3)
    for number in 1...3 { #expect(await probe.next() == .value("\(number)")) }
    // A reply on the same connection follows all that the server had to send until then.
    #expect(try await connection.value(of: "numbers").value.data == Array("3".utf8))
    #expect(asked.withLock { $0 } == .max(3))
    probe.request(2)
    #expect(await probe.next() == .value("4"))
    #expect(await probe.next() == .value("5"))

    served.cancel()
    guard case .failed = await probe.next() else { return #expect(Bool(false), "the stream goes on") }
    for await isOver in isCancelled.values where isOver { break }
  }

  @Test func completionIsForwardedThroughTheSocket() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let served = try ["a", "b"].publisher.serve(as: "letters", at: path)
    let probe = try StreamConnection(socket: path).stream("letters").probe(5)
    #expect(await probe.next() == .value("a"))
    #expect(await probe.next() == .value("b"))
    #expect(await probe.next() == .finished)
    served.cancel()
  }

  @Test func aFailureIsForwardedAsAMessage() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    struct Oops: Error, CustomStringConvertible { var description: String { "the well is dry" } }
    let served = try Fail<[UInt8], Oops>(error: Oops()).serve(as: "well", at: path)
    let probe = try StreamConnection(socket: path).stream("well").probe(1)
    #expect(await probe.next() == .failed(.failed(.applicationError, "the well is dry")))
    served.cancel()
  }

  @Test func aReleasedServerClosesAllDescriptors() async {
    await #expect(processExitsWith: .success) {
      func descriptorCount() throws -> Int {
        try #require(opendir("/proc/self/fd")).entryCount
      }
      /// Serves, reads and stops, and waits until the server is released.
      func serveOnce(_ path: String) async throws {
        let served = try Just(1).serve(as: "x", at: path)
        let connection = try StreamConnection(socket: path)
        #expect(try await connection.value(of: "x").value.data == [UInt8(ascii: "1")])
        connection.close()
        served.cancel()
      }
      let folder = try TemporaryFolder()
      try await serveOnce(folder.path("first"))  // with everything that is created once
      try await Task.sleep(for: .milliseconds(200))
      let before = try descriptorCount()
      for number in 0..<20 { try await serveOnce(folder.path("\(number)")) }
      // The loops end on their own threads.
      #expect(try await eventually { try descriptorCount() <= before })
    }
  }

  @Test func anInvalidNameOrPathIsAnError() throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    #expect(throws: StreamServer.AddStreamError.nameReserved("$x")) { try Just(1).serve(as: "$x", at: path) }
    let served = try Just(1).serve(as: "x", at: path)
    #expect(throws: SystemError.self) { try Just(1).serve(as: "x", at: path) }
    served.cancel()
  }
}

extension OpaquePointer {
  /// The entries of a folder that was opened, which this closes.
  fileprivate var entryCount: Int {
    defer { closedir(self) }
    var count = 0
    while readdir(self) != nil { count += 1 }
    return count
  }
}
