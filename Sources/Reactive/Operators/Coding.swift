/// Encodes values, for example as JSON. Foundation's encoders conform to it in the product `ReactiveFoundation`.
public protocol TopLevelEncoder {
  /// The type of the encoded form.
  associatedtype Output
  /// Returns the value in its encoded form.
  func encode<T: Encodable>(_ value: T) throws -> Output
}

/// Decodes values, for example from JSON. Foundation's decoders conform to it in the product `ReactiveFoundation`.
public protocol TopLevelDecoder {
  /// The type of the encoded form.
  associatedtype Input
  /// Returns the value that `input` encodes.
  func decode<T: Decodable>(_ type: T.Type, from input: Input) throws -> T
}

extension Publishers {
  /// Delivers each value encoded; fails with the error that the encoder throws.
  public typealias Encode<Upstream: Publisher, Coder: TopLevelEncoder> =
    Staged<Upstream, Coder.Output, Throwing<Upstream.Failure>, Coder> where Upstream.Output: Encodable
  /// Delivers each value decoded; fails with the error that the decoder throws.
  public typealias Decode<Upstream: Publisher, Output: Decodable, Coder: TopLevelDecoder> =
    Staged<Upstream, Output, Throwing<Upstream.Failure>, Coder> where Upstream.Output == Coder.Input
}

extension Publishers.Staged where Upstream.Output: Encodable, Kind: TopLevelEncoder, Output == Kind.Output {
  /// ``Publishers/Encode``.
  @inlinable public init(upstream: Upstream, encoder: Kind) where Mode == Throwing<Upstream.Failure> {
    self.init(upstream, "Encode") { .emit(try encoder.encode($0)) }
  }
}

extension Publishers.Staged where Output: Decodable, Kind: TopLevelDecoder, Upstream.Output == Kind.Input {
  /// ``Publishers/Decode``.
  @inlinable public init(upstream: Upstream, decoder: Kind) where Mode == Throwing<Upstream.Failure> {
    self.init(upstream, "Decode") { .emit(try decoder.decode(Output.self, from: $0)) }
  }
}

extension Publisher {
  /// Delivers each value encoded; fails with the first error that the encoder throws. Demand: passed upstream
  /// unchanged.
  @inlinable public func encode<Coder: TopLevelEncoder>(encoder: Coder) -> Publishers.Encode<Self, Coder>
  where Output: Encodable {
    .init(upstream: self, encoder: encoder)
  }

  /// Delivers each value decoded; fails with the first error that the decoder throws. Demand: passed upstream
  /// unchanged.
  @inlinable public func decode<Item: Decodable, Coder: TopLevelDecoder>(
    type: Item.Type, decoder: Coder
  ) -> Publishers.Decode<Self, Item, Coder> where Output == Coder.Input {
    .init(upstream: self, decoder: decoder)
  }
}
