"""A worker's proxy to the API servers: port 16443 of loopback leads to one that answers.

Run as a service: `python3 -m standin.proxy`.
"""

from __future__ import annotations

import asyncio
import json

from standin.network import ENDPOINTS
from standin.places import API_PORT


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", API_PORT)
    async with server:
        await server.serve_forever()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for address in json.loads(ENDPOINTS.read_text())["servers"]:
        try:
            far_reader, far_writer = await asyncio.wait_for(
                asyncio.open_connection(address, API_PORT), 2
            )
        except (OSError, asyncio.TimeoutError):
            continue
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        return
    writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError as error:
        print(error, flush=True)
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(main())
