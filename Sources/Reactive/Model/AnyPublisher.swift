/// A type-erased publisher.
///
/// The subscriber is erased when it attaches, so the whole pipeline upstream is compiled for one known subscriber type
/// and a value costs one indirect call.
public struct AnyPublisher<Output, Failure: Error>: Publisher, CustomStringConvertible {
  @usableFromInline let attach: (AnySubscriber<Output, Failure>) -> Void

  /// Hides the type of `publisher`.
  @inlinable public init<P: Publisher>(_ publisher: P) where P.Output == Output, P.Failure == Failure {
    if let erased = publisher as? Self {
      self = erased
    } else {
      attach = { publisher.subscribe($0) }
    }
  }

  /// Attaches the subscriber to the hidden publisher.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { attach(AnySubscriber(subscriber)) }

  /// `AnyPublisher`.
  public var description: String { "AnyPublisher" }
}

/// Sendable where its values are, so that a program can hand it to a task. The publisher that it hides must not be bound to one
/// thread: its operators' closures use nothing that another thread changes.
extension AnyPublisher: @unchecked Sendable where Output: Sendable {}

extension Publisher {
  /// Hides this publisher's type.
  ///
  /// Demand: passed upstream unchanged.
  @inlinable public func eraseToAnyPublisher() -> AnyPublisher<Output, Failure> { AnyPublisher(self) }
}
