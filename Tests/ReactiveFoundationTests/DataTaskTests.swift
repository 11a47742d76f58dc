#if canImport(FoundationNetworking)
  import Foundation
  import FoundationNetworking
  import Glibc
  import ReactiveFoundation
  import Testing

  @Suite(.timeLimit(.minutes(10))) struct DataTaskTests {
    /// Accepts one connection at a time on the loopback interface and answers a request with `answer`, or never.
    private final class Server: Sendable {
      let port: UInt16
      private let socket: CInt
      /// Signalled when a request has arrived, and when the client has closed its connection.
      let asked = DispatchSemaphore(value: 0)
      let left = DispatchSemaphore(value: 0)

      init(answer: String?) throws {
        let listener = Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = INADDR_LOOPBACK.bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) {
          $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(listener, $0, length) == 0 && listen(listener, 4) == 0 && getsockname(listener, $0, &length) == 0
          }
        }
        try #require(isBound)
        (socket, port) = (listener, UInt16(bigEndian: address.sin_port))
        let (asked, left) = (asked, left)
        Thread {
          while case let client = accept(listener, nil, nil), client >= 0 {
            var buffer = [UInt8](repeating: 0, count: 4096)
            if read(client, &buffer, buffer.count) > 0 { asked.signal() }
            if let answer {
              let text =
                "HTTP/1.1 404 Not Found\r\nContent-Length: \(answer.utf8.count)\r\nConnection: close\r\n\r\n\(answer)"
              _ = Array(text.utf8).withUnsafeBytes { write(client, $0.baseAddress, $0.count) }
            }
            while read(client, &buffer, buffer.count) > 0 {}
            close(client)
            left.signal()
          }
        }.start()
      }

      deinit {
        shutdown(socket, CInt(SHUT_RDWR))
        close(socket)
      }

      var url: URL? { URL(string: "http://127.0.0.1:\(port)/") }
    }

    private static func wait(_ signal: DispatchSemaphore) -> Bool { signal.wait(timeout: .now() + 60) == .success }

    @Test func responseIsDeliveredWithAnyStatus() async throws {
      let server = try Server(answer: "nothing here")
      let url = try #require(server.url)
      let session = URLSession(configuration: .ephemeral)
      for try await (data, response) in session.dataTaskPublisher(for: url).values {
        #expect(String(decoding: data, as: UTF8.self) == "nothing here")
        #expect((response as? HTTPURLResponse)?.statusCode == 404)
      }
      let publisher = session.dataTaskPublisher(for: URLRequest(url: url))
      #expect(publisher.request.url == url && publisher.session === session)
      session.invalidateAndCancel()
    }

    // A test that cancels a task has its own process: Foundation closes the descriptor of a cancelled task while Dispatch
    // still watches it, and a later request that gets the same descriptor can wait until its timeout.

    @Test func nothingIsRequestedBeforeDemand() async {
      await #expect(processExitsWith: .success) {
        let server = try Server(answer: nil)
        let session = URLSession(configuration: .ephemeral)
        var subscription: (any Subscription)?
        session.dataTaskPublisher(for: try #require(server.url)).subscribe(
          AnySubscriber(receiveSubscription: { subscription = $0 }))
        #expect(server.asked.wait(timeout: .now() + 0.1) == .timedOut)
        subscription?.request(.max(1))
        #expect(Self.wait(server.asked))
        subscription?.cancel()
        #expect(Self.wait(server.left))
        session.invalidateAndCancel()
      }
    }

    @Test func cancelClosesTheConnectionAndSendsNothing() async {
      await #expect(processExitsWith: .success) {
        let server = try Server(answer: nil)
        let session = URLSession(configuration: .ephemeral)
        nonisolated(unsafe) var signals = 0
        let sink = session.dataTaskPublisher(for: try #require(server.url))
          .sink(receiveCompletion: { _ in signals += 1 }, receiveValue: { _ in signals += 1 })
        #expect(Self.wait(server.asked))
        sink.cancel()
        #expect(Self.wait(server.left))
        #expect(signals == 0)
        session.invalidateAndCancel()
      }
    }

    @Test func missingResponseIsAFailure() async throws {
      let publisher = URLSession.shared.dataTaskPublisher(for: try #require(URL(string: "http://127.0.0.1:1/")))
      await #expect(throws: URLError.self) { for try await _ in publisher.values {} }
    }
  }
#endif
