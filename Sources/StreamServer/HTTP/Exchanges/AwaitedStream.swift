import HTTP
import StreamProtocol
import StreamRuntime

/// A request whose stream is being made, or deleted. Its body waits.
final class AwaitedStream: PendingResponse {
  private let head: RequestHead
  /// Begins the request, unless it is refused.
  private let proceed: (_ isNew: Bool) -> Void

  private init(
    _ request: HTTPRequest, _ head: RequestHead, on http: HTTPSpeaker, _ proceed: @escaping (_ isNew: Bool) -> Void
  ) {
    (self.head, self.proceed) = (head, proceed)
    super.init(request, on: http)
  }

  /// Has a stream made for a request, which begins then.
  static func begin(
    _ needed: NeededStream, for request: HTTPRequest, _ head: RequestHead, on http: HTTPSpeaker,
    _ proceed: @escaping (_ isNew: Bool) -> Void
  ) {
    let exchange = AwaitedStream(request, head, on: http, proceed)
    http.connection.speak(exchange)
    http.connection.make(needed) { failure, isNew in exchange.end(failure, of: needed.name, isNew: isNew) }
  }

  /// Deletes a stream.
  static func delete(_ name: String, for request: HTTPRequest, _ head: RequestHead, on http: HTTPSpeaker) {
    let exchange = AwaitedStream(request, head, on: http) { _ in http.respond(.noContent, to: request) }
    http.connection.speak(exchange)
    http.connection.delete(name) { failure in exchange.end(failure, of: name, isNew: false) }
  }

  private func end(_ failure: RequestFailure?, of name: String, isNew: Bool) {
    guard isInProgress else { return }
    connection.speak(http)
    if let failure {
      http.madeHolds = []
      http.refuse(http.rejection(.init(name, failure)), to: request, head)
    } else {
      proceed(isNew)
    }
    connection.settle()
    _ = connection.flush()
    http.continueWithBody()
  }

  /// The next process does not know what this one makes.
  override func save(to saved: inout SavedHTTP) { http.respond(Rejection(of: .notHandedOver), to: request) }
}
