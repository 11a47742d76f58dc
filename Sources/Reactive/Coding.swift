/// Makes something, say JSON, of values. Foundation's encoders are such in the product `ReactiveFoundation`.
public protocol TopLevelEncoder {
  /// What it makes.
  associatedtype Output
  /// The value in its encoded form.
  func encode<T: Encodable>(_ value: T) throws -> Output
}

/// Makes values of something, say JSON. Foundation's decoders are such in the product `ReactiveFoundation`.
public protocol TopLevelDecoder {
  /// What it reads.
  associatedtype Input
  /// The value that `input` holds.
  func decode<T: Decodable>(_ type: T.Type, from input: Input) throws -> T
}

extension Publishers {
  /// Delivers each value encoded; fails with what the encoder throws.
  public struct Encode<Upstream: Publisher, Coder: TopLevelEncoder>: Stage where Upstream.Output: Encodable {
    /// What the encoder makes.
    public typealias Output = Coder.Output
    /// Whatever the encoder throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    @usableFromInline let encoder: Coder

    /// `upstream.encode(encoder: encoder)`
    public init(upstream: Upstream, encoder: Coder) { (self.upstream, self.encoder) = (upstream, encoder) }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, any Error> {
      { [encoder] value in Throwing<any Error>.attempt { .emit(try encoder.encode(value)) } }
    }
  }

  /// Delivers each value decoded; fails with what the decoder throws.
  public struct Decode<Upstream: Publisher, Output: Decodable, Coder: TopLevelDecoder>: Stage
  where Upstream.Output == Coder.Input {
    /// Whatever the decoder throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    @usableFromInline let decoder: Coder

    /// `upstream.decode(type: Output.self, decoder: decoder)`
    public init(upstream: Upstream, decoder: Coder) { (self.upstream, self.decoder) = (upstream, decoder) }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, any Error> {
      { [decoder] value in Throwing<any Error>.attempt { .emit(try decoder.decode(Output.self, from: value)) } }
    }
  }
}

extension Publisher {
  /// Delivers each value encoded; the first error that the encoder throws ends it.
  ///
  /// Demand: upstream's, value for value.
  public func encode<Coder: TopLevelEncoder>(encoder: Coder) -> Publishers.Encode<Self, Coder>
  where Output: Encodable {
    Publishers.Encode(upstream: self, encoder: encoder)
  }

  /// Delivers each value decoded; the first error that the decoder throws ends it.
  ///
  /// Demand: upstream's, value for value.
  public func decode<Item: Decodable, Coder: TopLevelDecoder>(
    type: Item.Type, decoder: Coder
  ) -> Publishers.Decode<Self, Item, Coder> where Output == Coder.Input {
    Publishers.Decode(upstream: self, decoder: decoder)
  }
}
