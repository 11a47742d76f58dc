// The types of Node that the package's declarations need, for a machine without those of Debian.

interface Buffer extends Uint8Array {
  toString(encoding?: BufferEncoding, start?: number, end?: number): string;
}
declare type BufferEncoding = "utf8" | "latin1" | "hex" | "base64";
declare const Buffer: { from(value: string | ArrayLike<number>): Buffer };

declare module "node:stream" {
  class Stream {
    on(event: string, listener: (...values: any[]) => void): this;
    destroy(error?: Error): this;
  }
  export class Readable extends Stream {}
  export class Writable extends Stream {
    write(chunk: any, callback?: (error: Error | null | undefined) => void): boolean;
    write(chunk: any, encoding: BufferEncoding, callback?: (error: Error | null | undefined) => void): boolean;
    end(chunk?: any): this;
  }
}

declare module "node:stream/web" {
  export interface ReadableStream<Item> {
    cancel(reason?: any): Promise<void>;
  }
}
