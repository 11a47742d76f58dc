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
  public struct Encode<Upstream: Publisher, Coder: TopLevelEncoder>: CompositePublisher
  where Upstream.Output: Encodable {
    /// The implementation.
    public let body: Staged<Upstream, Coder.Output, Throwing<Upstream.Failure>>

    /// `upstream.encode(encoder: encoder)`
    @inlinable public init(upstream: Upstream, encoder: Coder) {
      body = Staged(upstream, "Encode") { .emit(try encoder.encode($0)) }
    }
  }

  /// Delivers each value decoded; fails with the error that the decoder throws.
  public struct Decode<Upstream: Publisher, Output: Decodable, Coder: TopLevelDecoder>: CompositePublisher
  where Upstream.Output == Coder.Input {
    /// The implementation.
    public let body: Staged<Upstream, Output, Throwing<Upstream.Failure>>

    /// `upstream.decode(type: Output.self, decoder: decoder)`
    @inlinable public init(upstream: Upstream, decoder: Coder) {
      body = Staged(upstream, "Decode") { .emit(try decoder.decode(Output.self, from: $0)) }
    }
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
